"""Two backends in step: the same actions, and after each the same ownership, up to the names of rows and pages.

Both are judged by the law, each by a monitor of its own. Two monitors that see the same requests number the same
prefixes alike, so a cached key, which is such a number, means the same in both. What is compared: who lives, what each
record says but for its row, which keys are cached, with how many pages, and how often each is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from textwrap import shorten as cut
from typing import NamedTuple

from kvledger.spec.actions import Action
from kvledger.spec.answer import Granted, Refused
from kvledger.spec.explain import action_in_words
from kvledger.spec.ledger import Ledger
from kvledger.spec.world import WrongInput
from kvledger.tests.kit.lockstep import Finding, Lockstep

LINE = 72  # characters of what somebody says that fit into a line
shorten = partial(cut, placeholder=" ...")


class Differs(Exception):
    """The two do not agree. Its text: where, about what, and what each of them says."""


class Fact(NamedTuple):
    """Something that both should say alike."""

    about: str
    first: object
    second: object


class Against:
    """A second backend beside the one that is driven. names: theirs, on the command line. steps: how many both have
    done."""

    def __init__(self, driven: Lockstep, other: Lockstep, names: tuple[str, str]) -> None:
        self.driven, self.other, self.names, self.steps = driven, other, names, 0

    def follow(self, act: Action, answer: Granted | Refused) -> None:
        """The other one does the same. Raises Differs."""
        self.steps += 1
        try:
            theirs = self.other.do(act)
        except WrongInput as wrong:
            raise self._differs(act, Fact("the call", "may be made", str(wrong))) from None
        except Finding as finding:
            raise self._differs(act, Fact("the call", "keeps the law", self._broken(finding))) from None
        said = (answer.short if isinstance(answer, Refused) else "granted" for answer in (answer, theirs))
        for fact in (Fact("the call", *said), *facts(self.driven.ledger, self.other.ledger)):
            if fact.first != fact.second:
                raise self._differs(act, fact)

    def drain(self) -> None:
        """The other one's drain probe. Raises Differs."""
        try:
            self.other.drain()
        except Finding as finding:
            raise Differs(f"DIFFERS  in the drain probe\n    {self._broken(finding)}") from None

    def _broken(self, finding: Finding) -> str:
        return f"breaks {finding.rule}, as a replay with --backend {self.names[1]} shows"

    def _differs(self, act: Action, fact: Fact) -> Differs:
        lines = [f"DIFFERS  after step {self.steps:,}, {shorten(action_in_words(act), LINE)}", f"  {fact.about}"]
        for name, says in zip(self.names, (fact.first, fact.second), strict=True):
            lines.append(f"    {name}: {shorten(str(says), LINE)}")
        return Differs("\n".join(lines))


def facts(first: Ledger, second: Ledger) -> Iterator[Fact]:
    """All that must be alike, the broad before the narrow."""
    yield Fact("who lives", sorted(first.requests), sorted(second.requests))
    yield Fact("which sessions there are", sorted(first.sessions), sorted(second.sessions))
    yield Fact("who holds a row", sorted(first.records), sorted(second.records))
    for holder, record in first.records.items():
        theirs = second.records[holder]
        yield Fact(f"protected, committed and allocated length of {holder}", record[1:], theirs[1:])
    for req, matched in first.admitted.items():
        yield Fact(f"how many pages {req} was admitted with", len(matched), len(second.admitted.get(req, ())))
    yield Fact("how many pages are free", first.free_page_count(), second.free_page_count())
    if first.index.keys() != second.index.keys():
        here, there = (len(one.index.keys() - other.index.keys()) for one, other in ((first, second), (second, first)))
        yield Fact("how many keys are cached that the other one has not", here, there)
        return
    yield Fact("how often each key is read", reading(first), reading(second))


def reading(ledger: Ledger) -> Counter[int]:
    """Key -> by how many holders its pages are read."""
    return Counter(ledger.pages[page].owner for pages in ledger.locks.values() for page in pages)
