"""The failure screen: where to look first, what broke, by which step, shown on the rows and pages that matter.

80 columns, no repr. Every line that starts with a word in the last block is a command.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from kvledger.spec.action import name_of
from kvledger.spec.actions import Submit
from kvledger.spec.answer import Freed, Refused, Reply
from kvledger.spec.explain import action_in_words, answer_in_words, because, page_in_words, row_in_words, sides
from kvledger.spec.ledger import Ledger
from kvledger.spec.monitor import Monitor
from kvledger.spec.page import page_of
from kvledger.spec.rules import RULES, Broken, Rule
from kvledger.spec.snapshot import Snapshot
from kvledger.spec.trace import HANGS, RAISES, Step
from kvledger.spec.world import World
from kvledger.tests.kit.limit import LIMIT_S
from kvledger.tests.kit.lockstep import Finding
from kvledger.tests.kit.verdict import DEVIATES, HOLDS, Verdict
from kvledger.tests.report.places import PLACES, place_of

WIDTH = 80
STEPS = 20  # steps shown at most
STATES = 34  # of it for the columns of states
CELL = 6  # lines of one action or answer
SUBJECTS = 3  # rows and pages shown at most
YOURS = "my_adapter:make"  # who is asked where nobody is known that could be asked again


@dataclass(frozen=True)
class Screen:
    """All that a failure screen says. steps end with the guilty one. target: who answered, None: nobody that can be
    asked again. trace: where it was saved, if it was. opening: where the run begins, if not at its start."""

    world: World
    steps: Sequence[Step]
    finding: Finding
    command: str
    target: str | None
    seed: int | None = None
    trace: str | None = None
    found_after: int | None = None
    verdicts: Sequence[Verdict] = ()
    blind: str | None = None
    drained: bool = False
    limit_s: float | None = None
    opening: Snapshot | None = None


@dataclass(frozen=True)
class Line:
    """One step, with the state of each subject after it, as the law has it."""

    number: int
    action: str
    answer: str
    states: tuple[str, ...]


def show(screen: Screen) -> str:
    """The whole screen."""
    before, lines, subjects = _history(screen)
    rule = RULES.get(screen.finding.rule)
    guilty = screen.steps[-1]
    out = [_header(screen), _place(screen)]
    if rule is None:
        word = {RAISES: "raises", HANGS: "hangs"}[screen.finding.rule]
        out.append(f"BROKEN  the backend {word}")
    else:
        out += _folded(f"BROKEN  {rule.title:26}", rule.sentence)
    where = "in the drain probe, " if screen.drained else ""
    out += [f"        {where}by {name_of(guilty.act)}, at step {screen.finding.step}", ""]
    out += _table(lines, [title for title, _ in subjects], sides(screen.finding.rule, screen.finding.facts, before),
                  "kind" in screen.finding.facts)  # fmt: skip
    out += ["", *textwrap.wrap(because(screen.finding.rule, screen.finding.facts, before), WIDTH)]
    out += [*textwrap.wrap(screen.blind, WIDTH)] if screen.blind else []
    out += ["", *_commands(screen, rule), *_tally(screen)]
    return "\n".join(line.rstrip() for line in out)


def _header(screen: Screen) -> str:
    declared = screen.world.declared
    facts = f"{declared.title}, page {screen.world.page_size}"
    facts += f", seed {screen.seed}" if screen.seed is not None else ""
    command = f"$ {screen.command}"
    return f"{command}{facts:>{max(WIDTH - len(command), len(facts) + 2)}}"


def _place(screen: Screen) -> str:
    """Where to look first."""
    place = place_of(screen.finding.rule, name_of(screen.steps[-1].act), drained=screen.drained)
    return f"place   {place.number} of {len(PLACES)}, {place.name}: {place.look}"


def _folded(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead + "  ", subsequent_indent=" " * (len(lead) + 2))


def _history(screen: Screen) -> tuple[Ledger, list[Line], list[tuple[str, Callable[[Ledger], str]]]]:
    """Judge the steps once more, watching the rows and pages that the finding is about."""
    *earlier, guilty = screen.steps
    first, held = Monitor(screen.world, screen.opening, count_armed=False), dict[str, int]()
    for step in earlier:
        _repeat(first, step)
        held |= {req: record.row or 0 for req, record in first.ledger.records.items()}
    before = first.ledger
    subjects = _subjects(screen.finding, before, guilty, held)
    again = Monitor(screen.world, screen.opening, count_armed=False)
    lines = []
    for number, step in enumerate(screen.steps, 1):
        if step is not guilty:
            _repeat(again, step)
        elif "kind" in screen.finding.facts:
            _repeat(again, step)
            before = again.ledger
        states = tuple(state(again.ledger) for _, state in subjects)
        action = ("probe: " if step.probe else "") + action_in_words(step.act)
        breaks = screen.finding.facts.get("breaks", screen.finding.rule)
        unanswered = step is guilty and breaks in (RAISES, HANGS) and step.answer == Refused()
        lines.append(Line(number, action, "no answer" if unanswered else _answered(step), states))
    return before, lines, subjects


def _repeat(monitor: Monitor, step: Step) -> None:
    if step.probe:
        return
    try:
        monitor.step(step.act, step.answer)
    except Broken:
        return


def _answered(step: Step) -> str:
    return "" if isinstance(step.act, Submit) and isinstance(step.answer, Reply) else answer_in_words(step.answer)


def _subjects(
    finding: Finding, before: Ledger, guilty: Step, held: Mapping[str, int]
) -> list[tuple[str, Callable[[Ledger], str]]]:
    """The rows and pages that the facts name, then those of the request that they name. held: its last row."""
    found: dict[tuple[str, int], None] = {}
    for kind, number in _named(finding, before, guilty, held):
        if len(found) < SUBJECTS:
            found[kind, number] = None

    def watch(kind: str, number: int) -> Callable[[Ledger], str]:
        return lambda ledger: (page_in_words if kind == "page" else row_in_words)(ledger, number)

    return [(f"{kind} {number}", watch(kind, number)) for kind, number in found]


def _named(
    finding: Finding, before: Ledger, guilty: Step, held: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    facts = finding.facts
    kind, _, number = str(facts.get("subject", "")).partition(" ")
    if kind in ("row", "page") and number.isdecimal():
        yield kind, int(number)
    if "upto" in facts and facts.get("req") in before.tables:  # published too far: the last page of it
        table = before.tables[str(facts["req"])]
        yield from (("page", page) for page in table[(cast(int, facts["upto"]) - 1) // before.world.page_size :][:1])
    for name in ("page", "own", "row_lists"):
        if isinstance(facts.get(name), int):
            yield "page", facts[name]  # type: ignore[misc]
    if isinstance(facts.get("row"), int):
        yield "row", facts["row"]  # type: ignore[misc]
    cached = facts.get("cached")
    yield from (("page", page) for page in (cached if isinstance(cached, tuple) else ()))
    if "freed" in facts:
        said, law = (Counter(cast(Freed, facts[name]).pages) for name in ("freed", "law"))
        yield from (("page", page) for page in sorted((said - law) + (law - said)))
    req = facts.get("req", facts.get("subject", getattr(guilty.act, "req", None)))
    if req in held and before.world.has("ROWS"):
        yield "row", held[str(req)]
    yield from (("page", page) for page in before.tables.get(str(req), ()))
    if isinstance(guilty.answer, Reply):
        size = before.world.page_size
        for slots in (*guilty.answer.matched, *guilty.answer.slots):
            yield from (("page", page_of(slot, size)) for slot in slots)


def _table(lines: list[Line], subjects: list[str], both: tuple[str, str] | None, after: bool) -> list[str]:
    """Step, action, answer, then a column for each subject, the one that the finding is about first.

    both: what law and backend say of that one at the guilty step. after: the states of the guilty step are after it.
    """
    cell = " / ".join(both) if both and subjects else ""
    said_by_both = 0 < len(cell) <= STATES - 2  # the sentence below says it, too
    if said_by_both:
        guilty = lines[-1]
        lines = [*lines[:-1], replace(guilty, states=(cell, *guilty.states[1:]))]
    columns = [[line.states[at] for line in lines] for at in range(len(subjects))]
    widths = [max(map(len, [title, *column])) + 2 for title, column in zip(subjects, columns, strict=True)]
    while widths and sum(widths) > STATES:
        widths.pop()
    action = min(max(len(line.action) for line in lines), STATES, WIDTH - 22 - sum(widths)) + 2
    answer = max(min(max(len(line.answer) for line in lines) + 2, WIDTH - 10 - action - sum(widths)), 12)
    titles = "".join(f"{title:{width}}" for title, width in zip(subjects, widths, strict=False))
    out = [f"    step  {'action':{action}}{'answer':{answer}}{titles}"]
    shown = _telling(lines)
    last = 0
    for line in shown:
        if left_out := lines[last : line.number - 1]:
            out.append(f"          ... {_left_out(left_out)}")
        last = line.number
        states = "".join(f"{state:{width}}" for state, width in zip(line.states, widths, strict=False))
        mark = ">" if line is lines[-1] else " "
        acts, said = _cell(line.action, action - 2), _cell(line.answer, answer - 2)
        out.append(f"  {mark} {line.number:4}  {acts[0]:{action}}{said[0]:{answer}}{states}")
        for at in range(1, max(len(acts), len(said))):
            more = [column[at] if at < len(column) else "" for column in (acts, said)]
            out.append(f"          {more[0]:{action}}{more[1]}")
    if said_by_both:
        out.append(f"{'law says / backend says':>{min(10 + action + answer + 23, WIDTH)}}")
    if len(widths) > said_by_both and not after:
        out.append(f"{'(the line >: before the step)':>{min(10 + action + answer + sum(widths), WIDTH)}}")
    return out


def _cell(text: str, width: int) -> list[str]:
    """A text in lines; a batch of thirty says enough in its first ones."""
    lines = textwrap.wrap(text, width) or [""]
    return lines if len(lines) <= CELL else [*lines[: CELL - 1], f"... {len(lines) - CELL + 1} lines more"]


def _left_out(lines: list[Line]) -> str:
    """What stands for steps that are not shown: mostly they change nothing that is; in a very long run the first do."""
    quiet = len({line.states for line in lines}) == 1
    if len(lines) == 1:
        return "1 step that changes none of these"
    return f"{len(lines)} steps {'that change none of these' if quiet else 'before'}"


def _telling(lines: list[Line]) -> list[Line]:
    """The steps that change what is shown, and the last ones: a long run has to fit a screen."""
    if len(lines) <= STEPS:
        return lines
    changing = [line for before, line in pairwise(lines[:-5]) if line.states != before.states]
    return changing[-(STEPS - 5) :] + lines[-5:]


def _commands(screen: Screen, rule: Rule | None) -> list[str]:
    out = []
    if screen.trace is None:
        out.append("This run could not be stored here, so it cannot be replayed.")
    else:
        trace, target = shlex.quote(screen.trace), shlex.quote(screen.target or YOURS)
        test = f"test_{(rule.id if rule else screen.finding.rule).lower().replace('-', '_')}.py"
        limit = f" --limit {screen.limit_s:g}" if screen.limit_s not in (None, LIMIT_S) else ""
        out.append(f"{'again' if screen.target else 'yours'}    kvledger replay {trace} --backend {target}{limit}")
        out.append(f"pytest   kvledger explain --pytest {trace} > {test}")
    if rule is not None:
        out.append(f"rule     kvledger rules {rule.name}")
    return out


def _tally(screen: Screen) -> list[str]:
    parts = []
    if screen.found_after is not None:
        actions = "action" if screen.found_after == 1 else "actions"
        shrunk = f" shrunk to {len(screen.steps)}" if len(screen.steps) < screen.found_after else ""
        parts.append(f"{screen.found_after} {actions}{shrunk}.")
    others = [verdict.word for verdict in screen.verdicts if verdict.rule.id != screen.finding.rule]
    if others:
        named = {HOLDS: "hold", DEVIATES: "deviate"}
        words = [f"{others.count(word)} {named.get(word, word.lower())}" for word in dict.fromkeys(others)]
        parts.append(f"{len(others)} other rules: {', '.join(words)}.")
    *folded, last = textwrap.wrap(" ".join(parts), WIDTH - 8) or [""]
    return [*folded, f"{last:{WIDTH - 8}}  exit 1"]
