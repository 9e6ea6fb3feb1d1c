"""Stand-ins for packages that an engine imports and never calls here: a finder that answers for absent ones.

An engine's bookkeeping needs torch and little else, but the modules that hold it import half of what a server needs.
The idea: a finder at the very end of sys.meta_path is asked only for what nobody else has found, so a package that is
really there always wins. What it makes up is a package whose every attribute is a class, since a class can stand
wherever an import-time name is used: as a base class, a decorator, a default, an annotation, a field's type.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "99.0.0"  # new enough for whoever compares


class StubClass(type):
    """The type of whatever is asked of a stub: its attributes are made on demand, and `Stub | None` is a type."""

    def __getattr__(cls, name: str) -> StubClass:
        return _on_demand(cls, name)

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__


class StubModule(ModuleType):
    """A package that is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = VERSION

    def __getattr__(self, name: str) -> StubClass:
        return _on_demand(self, name)


class Stub(metaclass=StubClass):
    """Constructed with anything; `@stub.register("x")` leaves what it decorates as it is; Stub[T] is a type."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, decorated: object = None, *_: object, **__: object) -> Any:
        return decorated

    def __class_getitem__(cls, _: object) -> type[Stub]:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: Callable[..., object]) -> object:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class StubFinder(MetaPathFinder, Loader):
    """Answers for these top-level packages and everything below them. asked: the modules it really had to make."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = frozenset(packages)
        self.asked: list[str] = []

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A package, if it is one of ours."""
        if fullname.partition(".")[0] not in self.packages:
            return None
        self.asked.append(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> StubModule:
        """An empty package with all names in it."""
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install(*packages: str) -> StubFinder:
    """From now on these packages can be imported, where they are absent: call it before the engine's first import."""
    finder = StubFinder(packages)
    sys.meta_path.append(finder)
    return finder


def _on_demand(owner: StubClass | StubModule, name: str) -> StubClass:
    """An attribute of a stub. Not a dunder: inspect and copy ask for those to learn what something is."""
    if name.startswith("__"):
        raise AttributeError(name)
    made = StubClass(name, (Stub,), {})
    setattr(owner, name, made)
    return made
