"""Stand-ins for absent packages: what is asked of them at import time, and that what is really there wins."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Iterator

import pytest

from kvledger.tests.engines.stubs import StubFinder, install

ABSENT = "absent_engine_part"


@pytest.fixture
def finder() -> Iterator[StubFinder]:
    """A finder for one package that is nowhere, and for one that is here; gone afterwards."""
    found = install(ABSENT, "json")
    yield found
    sys.meta_path.remove(found)
    for name in [name for name in sys.modules if name.partition(".")[0] == ABSENT]:
        del sys.modules[name]


def test_what_is_there_wins(finder: StubFinder) -> None:
    assert importlib.import_module("json.decoder").JSONDecoder().decode("1") == 1
    assert sys.meta_path[-1] is finder and finder.asked == []


def test_other_absent_packages_stay_absent(finder: StubFinder) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{ABSENT}_too")


def test_every_part_of_an_absent_package_can_be_imported(finder: StubFinder) -> None:
    deep = importlib.import_module(f"{ABSENT}.some.part")
    assert deep.__version__ and deep.Anything is deep.Anything
    assert finder.asked == [ABSENT, f"{ABSENT}.some", f"{ABSENT}.some.part"]


def test_its_names_stand_for_whatever_a_module_uses_at_import(finder: StubFinder) -> None:
    part = importlib.import_module(ABSENT)

    class Child(part.Base):  # type: ignore[name-defined, misc]
        pass

    @part.register("name", level=1)  # type: ignore[untyped-decorator]
    def decorated() -> int:
        return 1

    assert decorated() == 1 and issubclass(Child, part.Base) and Child(1, key=2)
    assert part.Kind | None is part.Kind and None | part.Kind is part.Kind and part.Generic[int] is part.Generic
    assert part.Enum.member.nested is part.Enum.member.nested


def test_nobody_is_misled_about_what_it_is(finder: StubFinder) -> None:
    """inspect and copy ask for dunder names that a stub does not have."""
    part = importlib.import_module(ABSENT)
    assert inspect.unwrap(part.Kind) is part.Kind and copy.copy(part.Kind) is part.Kind
    with pytest.raises(AttributeError):
        part.__wrapped__  # noqa: B018
