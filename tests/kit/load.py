"""From a word on the command line to a backend in a world: names, module:function, and what can be wrong with them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from kvledger.spec.backend import Backend, Declaration, KeepsContent, Make, Scrambles, World
from kvledger.spec.world import WrongInput

NAMES = {
    "reference": "kvledger.reference.backend:make",
    "chunk_cache": "kvledger.reference.backend:make_chunk_cache",
    "blocks": "kvledger.tests.engines.blocks:make",
    "oracle-lifo": "kvledger.tests.engines.oracle:make_lifo",
    "oracle-fifo": "kvledger.tests.engines.oracle:make_fifo",
    "oracle-random": "kvledger.tests.engines.oracle:make_random",
    "oracle-adversarial": "kvledger.tests.engines.oracle:make_adversarial",
}
BRIEF = 200  # characters of somebody else's message that fit into a line of ours


def load_backend(target: str) -> Make:
    """The factory that `target` names: one of NAMES, or module:function. Raises WrongInput."""
    place = NAMES.get(target, target)
    module_name, _, function = place.partition(":")
    if not module_name or not function:
        raise WrongInput(f"backend {target!r}: expected {', '.join(NAMES)}, or module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a console script does not look beside the user
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise WrongInput(f"backend {target!r}: importing {module_name} raised {brief(error)}") from error
    make = getattr(module, function, None)
    if not callable(make):
        raise WrongInput(f"backend {target!r}: expected a function {function} in {module_name}, found {make!r}")
    return make  # type: ignore[no-any-return]


def build(make: Make, world: World, target: str = "the backend") -> tuple[Backend, World]:
    """A fresh backend, and its world with what it declares filled in. Raises WrongInput."""
    try:
        backend = make(world)
        declaration = backend.declare()
    except WrongInput:
        raise
    except Exception as error:
        raise WrongInput(f"{target}: make({sizes(world)}) raised {brief(error)}") from error
    if not isinstance(declaration, Declaration):
        raise WrongInput(f"{target}: declare() returned {declaration!r}, expected a Declaration")
    for capability, protocol in (("CONTENT", KeepsContent), ("SCRAMBLE", Scrambles)):
        if declaration.has(capability) and not isinstance(backend, protocol):
            raise WrongInput(f"{target}: declares {capability} but lacks the methods of {protocol.__name__}")
    if not callable(getattr(backend, "do", None)):
        raise WrongInput(f"{target}: make returned a {type(backend).__name__} without a method do")
    return backend, replace(world, declared=declaration)


def sizes(world: World) -> str:
    """A world in words."""
    return f"{world.rows} rows of {world.context_len}, {world.pages} pages of {world.page_size}"


def brief(error: BaseException) -> str:
    """Somebody else's exception in part of a line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:BRIEF]}" if text else type(error).__name__
