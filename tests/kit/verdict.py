"""One word a rule: HOLDS, BROKEN, DEVIATES, UNREACHED, UNSEEN, NOT DECLARED."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kvledger.spec.rules import RULES, Rule, declared
from kvledger.spec.world import World

HOLDS, BROKEN, DEVIATES = "HOLDS", "BROKEN", "DEVIATES"
UNREACHED, UNSEEN, NOT_DECLARED = "UNREACHED", "UNSEEN", "NOT DECLARED"
ENOUGH = 50  # times that a check must arm a rule before it may say that the rule holds


class Verdict(NamedTuple):
    """A rule, the word for it, and how often it could have been broken."""

    rule: Rule
    word: str
    armed: int


def verdicts(
    world: World, armed: Mapping[str, int], *, undone: Mapping[str, int], seen: Collection[str],
    broken: str | None = None, enough: int = 1, deviating: Collection[str] = (),
) -> list[Verdict]:  # fmt: skip
    """The word for each rule. undone: SHOULD rule -> how often it was not kept. seen: the kinds of evidence that were
    looked at (spec.rules.EVIDENCE). deviating: rules that are known not to be kept."""

    def word(rule: Rule) -> str:
        if rule.id == broken:
            return BROKEN
        if not declared(rule, world.declared):
            return NOT_DECLARED
        if rule.id in deviating:
            return DEVIATES
        if not set(rule.shown_by) & set(seen):
            return UNSEEN
        if undone.get(rule.id, 0):
            return DEVIATES
        return HOLDS if armed.get(rule.id, 0) >= enough or not rule.must else UNREACHED

    return [Verdict(rule, word(rule), armed.get(rule.id, 0)) for rule in RULES.values()]


def counted(found: list[Verdict]) -> str:
    """How many rules have which word, in one line."""
    words = [verdict.word for verdict in found]
    order = (BROKEN, HOLDS, DEVIATES, UNREACHED, UNSEEN, NOT_DECLARED)
    return ", ".join(f"{words.count(word)} {word}" for word in order if word in words)


def spelled(found: list[Verdict]) -> list[str]:
    """How many rules have which word; by name those that nobody must keep and that were not kept, and those that
    nothing can be said of."""
    lines = [f"{len(found)} rules: {counted(found)}"]
    for word in (DEVIATES, UNREACHED, UNSEEN, NOT_DECLARED):
        titles = ", ".join(verdict.rule.title for verdict in found if verdict.word == word)
        if titles:
            lines.append(textwrap.fill(titles, 100, initial_indent=f"  {word:<14}", subsequent_indent=" " * 16))
    return lines


def for_machines(found: list[Verdict]) -> dict[str, object]:
    """The same, rule by rule."""
    return {
        verdict.rule.id: {"name": verdict.rule.name, "verdict": verdict.word, "armed": verdict.armed}
        for verdict in found
    }
