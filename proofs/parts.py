"""The parts of the proof: which module settles what, and what each came to."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvledger.proofs.verdict import Progress, Verdict
from kvledger.spec.world import WrongInput


class Part(NamedTuple):
    """module: offers settle(progress), which yields verdicts. deep: takes minutes, and is asked for only if named, or
    with --deep."""

    module: str
    sentence: str
    deep: bool = False


PARTS: dict[str, Part] = {
    "kernels": Part("kvledger.proofs.kernels", "each transition of a page and of a record, by itself"),
    "counting": Part("kvledger.proofs.counting", "the axioms that count a page's readers"),
    "cells": Part("kvledger.proofs.cells", "any number of pages, rows, keys and holders"),
    "records": Part("kvledger.proofs.records", "any number of records, of any length, at every page size"),
    "posts": Part("kvledger.proofs.posts", "the posts of the kernels, by CrossHair"),
    "rows": Part("kvledger.proofs.rows", "any number of rows, over page ordinals, and tied to explored transitions"),
    "spin": Part("kvledger.proofs.spin", "three small worlds, counted by the law and by a model in Promela"),
    "worlds": Part("kvledger.proofs.worlds", "every state of the named worlds"),
    "ties": Part("kvledger.proofs.ties", "the steps of rows are what the code does, at every transition", True),
    "three": Part("kvledger.proofs.three", "every state of a world of three requests", True),
}


def chosen(names: Iterable[str], deep: bool) -> list[str]:
    """The parts named; of none, all that are quick, or with deep all. Raises WrongInput for a name that is none."""
    for name in names:
        if name not in PARTS:
            raise WrongInput(f"part {name!r}: expected some of {', '.join(PARTS)}")
    return list(dict.fromkeys(names)) or [name for name, part in PARTS.items() if deep or not part.deep]


def settle(names: Iterable[str], progress: Progress) -> Iterator[Verdict]:
    """Every verdict of these parts. A part that stumbles, over a law that fails or over its own code, ends with a
    verdict that does not hold, and the next one is asked. Raises WrongInput if Z3 or CrossHair is not installed."""
    last = ""

    def asks(what: str) -> None:
        nonlocal last
        last = what
        progress(what)

    for name in names:
        last = f"{name}: all"
        try:
            module = importlib.import_module(PARTS[name].module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("z3", "crosshair"):
                raise
            raise WrongInput(f"needs {error.name.partition('.')[0]}: pip install 'kvledger[prove]'") from None
        try:
            yield from module.settle(asks)
        except WrongInput:
            raise
        except Exception as error:
            yield Verdict(last, f"{name} is settled", f"stopped: {type(error).__name__}: {error}", False, 0.0)
