"""The real engines: which versions, what each needs, and the environment of its own that each lives in.

An engine wants its own torch and half a server's packages, so it is installed into an environment that holds it and
nothing else, and a command that names one of its backends runs there: kvledger starts itself again with that
environment's Python, and takes nothing along but its own package. An older version that gets by with what a newer one
needs is that one's guest: a folder with its wheel, which is looked into before the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import kvledger
from kvledger.spec.world import WrongInput

TORCH = "torch==2.13.*"
OURS = ("hypothesis>=6.100", "tqdm>=4.60")  # what kvledger itself needs; a test holds it against pyproject.toml
READY = "ready"  # the file that is written last: it holds the recipe the environment was made by
PYTHON_FILES = (".py", ".json", "METADATA")

# The engine's Python is given our package by its place, so that nothing else that lies beside it can be imported; and
# the folder of a guest, or nothing.
BOOT = """
import importlib.util, sys
home, guest = sys.argv.pop(1), sys.argv.pop(1)
sys.path[:0] = [guest] if guest else []
spec = importlib.util.spec_from_file_location("kvledger", home + "/__init__.py", submodule_search_locations=[home])
sys.modules["kvledger"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from kvledger.__main__ import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Engine:
    """One engine. needs: what pip installs first, a tuple a call. wheel_only: of its own wheel, the files that end so
    are enough; (): all of it. host: the engine whose guest it is. page_sizes: those that its kernels take; (): any."""

    package: str
    version: str
    needs: tuple[tuple[str, ...], ...] = ()
    wheel_only: tuple[str, ...] = ()
    host: Engine | None = None
    page_sizes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """As one types it: a guest's with its version."""
        return f"{self.package}-{self.version}" if self.host else self.package

    @property
    def title(self) -> str:
        """Package and version."""
        return f"{self.package} {self.version}"

    @property
    def place(self) -> Path:
        """The folder of its environment; a guest's, of its wheel."""
        home = os.environ.get("KVLEDGER_ENGINES") or Path.home() / ".cache/kvledger/engines"
        return Path(home).expanduser().absolute() / f"{self.package}-{self.version}"

    @property
    def python(self) -> Path:
        """The interpreter in which it can be imported."""
        return (self.host or self).place / "bin/python"

    @property
    def words(self) -> list[str]:
        """The command that starts kvledger there, but for what it is to do."""
        home, guest = str(Path(kvledger.__file__).parent), str(self.place) if self.host else ""
        return [str(self.python), "-s", "-P", "-c", BOOT, home, guest]

    @property
    def recipe(self) -> str:
        """All that decides what is installed: another recipe asks for another environment."""
        return "\n".join([" ".join(each) for each in self.needs] + [self.title, *self.wheel_only]) + "\n"

    @property
    def is_set_up(self) -> bool:
        """Whether its environment is there, whole, and made by this recipe; and its host's."""
        try:
            return (self.place / READY).read_text() == self.recipe and (self.host is None or self.host.is_set_up)
        except (OSError, UnicodeDecodeError):
            return False

    @property
    def runs_here(self) -> bool:
        """Whether the running interpreter is the one of its environment, and looks into its folder if it is a guest."""
        guests = [each for each in ENGINES.values() if each.host and str(each.place) in sys.path]
        return Path(sys.prefix).absolute() == (self.host or self).place and guests == [self] * bool(self.host)


SGLANG = Engine(
    "sglang",
    "0.5.23",
    needs=(
        (TORCH,),
        ("triton==3.9.0", "transformers==5.12.1", "openai==2.8.0"),
        ("numpy", "scipy", "sentencepiece", "partial_json_parser", "compressed-tensors", "orjson", "msgspec",
         "pybase64", "pyzmq", "psutil", "IPython", "aiohttp", "dill", "regex", "pillow", "pydantic", "requests",
         "fastapi", *OURS),
    ),
)  # fmt: skip
VLLM = Engine(
    "vllm",
    "0.33.0",
    needs=(
        (TORCH,),
        ("numpy", "packaging", "regex", "pydantic", "cloudpickle", "msgspec", "cachetools", "psutil", "pyzmq", "cbor2",
         "requests", "pyyaml", "pillow", *OURS),
    ),
    wheel_only=PYTHON_FILES,
)  # fmt: skip
# Before 0.5.22 the paged allocator's kernels count with Triton's ranges, which are powers of two.
SGLANG_0_5_20, SGLANG_0_5_10 = (
    Engine("sglang", version, host=SGLANG, page_sizes=tuple(2**power for power in range(9)))
    for version in ("0.5.20", "0.5.10")
)
ENGINES = {engine.name: engine for engine in (SGLANG, SGLANG_0_5_20, SGLANG_0_5_10, VLLM)}


class Elsewhere(WrongInput):
    """A backend was asked for that can only be had with another interpreter. As a message, for callers that have no
    command line to start again with."""

    def __init__(self, backend: str, engine: Engine) -> None:
        super().__init__(f"backend {backend!r}: runs with {engine.python} only")
        self.engine = engine


def engine_of(module: str) -> Engine | None:
    """The engine that this module is about: sglang_0_5_10 is about that guest, sglang_known and sglang_0_5_23 about
    sglang."""
    package, _, version = module.rpartition(".")[2].partition("_")
    return ENGINES.get(f"{package}-{version.replace('_', '.')}", ENGINES.get(package))


def ask_here(backend: str, module: str) -> None:
    """Nothing, if this backend's module can be imported in the running interpreter. Raises Elsewhere, or WrongInput if
    its engine is not set up."""
    engine = engine_of(module)
    if engine is None or engine.runs_here:
        return
    if not engine.is_set_up:
        raise WrongInput(f"backend {backend!r}: {engine.title} is not set up, kvledger engines setup {engine.name}")
    other = next((each for each in ENGINES.values() if each.runs_here), None)
    if other is not None:
        raise WrongInput(f"{other.name} and {engine.name} have a process each: expected one of them in a call")
    raise Elsewhere(backend, engine)


def start_again(engine: Engine, words: Sequence[str]) -> NoReturn:
    """This process goes on as `kvledger WORDS` in the engine's environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(engine.python, [*engine.words, *words])
