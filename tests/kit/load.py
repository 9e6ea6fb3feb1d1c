"""From a word on the command line to a backend in a world: names, module:function, and what can be wrong with them."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, cast

from kvledger.spec.backend import Backend, Declaration, Make, World
from kvledger.spec.itf import short
from kvledger.spec.world import WrongInput
from kvledger.tests.engines.venvs import ask_here, engine_of
from kvledger.tests.kit.limit import LIMIT_S, Overtime, TimeLimit

T = TypeVar("T")
NAMES = {
    "reference": "kvledger.reference.backend:make",
    "chunk_cache": "kvledger.reference.backend:make_chunk_cache",
    "blocks": "kvledger.tests.engines.blocks:make",
    "fast": "kvledger.fast.backend:make",
    "oracle-lifo": "kvledger.tests.engines.oracle:make_lifo",
    "oracle-fifo": "kvledger.tests.engines.oracle:make_fifo",
    "oracle-random": "kvledger.tests.engines.oracle:make_random",
    "oracle-adversarial": "kvledger.tests.engines.oracle:make_adversarial",
    "sglang": "kvledger.tests.engines.sglang_0_5_23:make",
    "sglang-rust": "kvledger.tests.engines.sglang_0_5_23:make_rust",
    "sglang-radix": "kvledger.tests.engines.sglang_0_5_23:make_radix",
    "sglang-no-cache": "kvledger.tests.engines.sglang_0_5_23:make_no_cache",
    "sglang-unasked": "kvledger.tests.engines.sglang_0_5_23:make_unasked",
    "sglang-0.5.20": "kvledger.tests.engines.sglang_0_5_20:make",
    "sglang-0.5.10": "kvledger.tests.engines.sglang_0_5_10:make",
    "vllm": "kvledger.tests.engines.vllm:make",
}
EXTRAS = {"fast": ("torch", "numpy")}  # what a backend needs beside kvledger itself: the extra that has its name
METHODS = {"VIEW": ("view",), "CONTENT": ("write", "read"), "SCRAMBLE": ("scramble",)}  # by capability
BRIEF = 200  # characters of somebody else's message that fit into a line of ours


def load_backend(target: str) -> Make:
    """The factory that `target` names: one of NAMES, or module:function. Raises WrongInput; Elsewhere, which is one, if
    another interpreter has it."""
    place = NAMES.get(target, target)
    module_name, _, function = place.partition(":")
    if not module_name or not function:
        raise WrongInput(f"backend {target!r}: expected {', '.join(NAMES)}, or module:function")
    if target in NAMES:
        ask_here(target, module_name)
        for package in EXTRAS.get(target, ()):
            if find_spec(package) is None:
                raise WrongInput(f"backend {target!r}: needs {package}: pip install 'kvledger[{target}]'")
    elif str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a console script does not look beside the user
    importing = f"backend {target!r}: expected a module that can be imported, but {module_name}"
    module = _theirs(importing, importlib.import_module, module_name)
    nothing = object()
    make = _theirs(f"backend {target!r}: {function}", getattr, module, function, nothing)
    if not callable(make):
        found = "none" if make is nothing else short(make)
        raise WrongInput(f"backend {target!r}: expected a function {function} in {module_name}, found {found}")
    return cast(Make, make)


def page_sizes(target: str) -> tuple[int, ...]:
    """Those that this backend's engine has kernels for; (): any."""
    engine = engine_of(NAMES.get(target, "").partition(":")[0])
    return engine.page_sizes if engine else ()


def ask_page_size(target: str, *sizes: int) -> None:
    """Raises WrongInput for one that this backend's engine has no kernels for."""
    known = page_sizes(target)
    for size in sizes:
        if known and size not in known:
            raise WrongInput(f"page size {size}: {target} has kernels for {', '.join(map(str, known))}")


def build(
    make: Make, world: World, target: str = "the backend", limit_s: float = LIMIT_S
) -> tuple[Backend, World]:
    """A fresh backend, and its world with what it declares filled in. Raises WrongInput, after limit_s seconds at the
    latest."""
    try:
        with TimeLimit(limit_s) as limit:
            return limit.call(_built, make, world, target)
    except Overtime:
        raise WrongInput(f"{target}: make or declare did not return within {limit_s} s") from None


def _built(make: Make, world: World, target: str) -> tuple[Backend, World]:
    backend = _theirs(f"{target}: make({sizes(world)})", make, world)
    for method in ("declare", "do"):
        if not _offers(backend, method):
            raise WrongInput(f"{target}: make returned {short(backend)}, expected a Backend, with a method {method}")
    declaration = _theirs(f"{target}: declare()", backend.declare)
    if type(declaration) is not Declaration:
        raise WrongInput(f"{target}: declare() returned {short(declaration)}, expected a Declaration")
    for capability, methods in METHODS.items():
        for method in methods if declaration.has(capability) else ():
            if not _offers(backend, method):
                raise WrongInput(f"{target}: declares {capability}, expected a method {method}, found none")
    return backend, replace(world, declared=declaration)


def _theirs(what: str, call: Callable[..., T], *args: object) -> T:
    """Somebody else's code, before anything is judged: what it raises is one line. what: was called."""
    try:
        return call(*args)
    except WrongInput as wrong:
        raise WrongInput(f"{what}: {wrong}") from None
    except (Overtime, KeyboardInterrupt):
        raise
    except BaseException as error:  # it may want to leave, or be cancelled
        raise WrongInput(f"{what} raised {brief(error)}") from error


def _offers(backend: object, method: str) -> bool:
    return callable(_theirs(f"the backend's {method}", getattr, backend, method, None))


def sizes(world: World) -> str:
    """A world in words."""
    return f"{world.rows} rows of {world.context_len}, {world.pages} pages of {world.page_size}"


def place_of(error: BaseException) -> str:
    """Where somebody else's exception was raised: file, line, function."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name}" if frames else "unknown"


def brief(error: BaseException) -> str:
    """Somebody else's exception in part of a line."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # its __str__ is somebody else's, too, and may do anything
        text = ""
    return f"{type(error).__name__}: {text[:BRIEF]}" if text else type(error).__name__
