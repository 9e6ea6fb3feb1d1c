"""A hunt on vLLM's own scheduler: programs drawn by a seed, what they break, and the shortest that still breaks it.

    kvledger engines hunt vllm                  by priority: KV is published that nobody computed
    kvledger engines hunt vllm --policy fcfs    clean
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product, takewhile
from random import Random

from kvledger.spec.actions import Abort, Flush
from kvledger.spec.world import World
from kvledger.tests.engines.vllm import DECLARED
from kvledger.tests.engines.vllm_scheduler import Arrive, Move, Setting, Turn, Watch
from kvledger.tests.kit.check import save
from kvledger.tests.kit.lockstep import FULL, Finding
from kvledger.tests.kit.shrink import Shrunk
from kvledger.tests.report.terminal import Screen, show

PATIENCE = 100  # turns after the program, for those who have not ended by then


def run(setting: Setting, program: Sequence[Move], trusting: bool = False) -> tuple[Finding | None, Watch]:
    """Perform a program, then let everybody end."""
    watch = Watch(setting, trusting)
    try:
        for move in program:
            watch.do(move)
        for _ in takewhile(lambda _: watch.scheduler.requests, range(PATIENCE)):
            watch.do(Turn())
        for req in list(watch.scheduler.requests):
            watch.do(Abort(req))
        watch.do(Flush())
        watch.monitor.finish()
    except Finding as finding:
        return finding, watch
    return None, watch


def drawn(policy: str, seed: int) -> tuple[Setting, list[Move]]:
    """A small pool; long requests that may wait, and short ones that may not; they share prefixes."""
    dice = Random(seed)
    size, pages = dice.choice((1, 2, 4)), dice.randint(6, 16)
    declared = replace(
        DECLARED,
        name=f"vllm's {policy} scheduler",
        capabilities=DECLARED.capabilities - {"EVICT", "DRAFTS"} | {"CONTENT"},
        publishes_on=frozenset({"extend", "decode"}),
        declines=frozenset({"BARRED", "MATCH_LIMIT", "NAMESPACES"}),
    )
    world = World(8, pages * size, pages, size, declared)
    setting = Setting(world, policy, chunk=size * dice.randint(1, 3), budget=size * dice.randint(3, 12))
    program: list[Move] = []
    for number in range(8):
        req, urgent = f"R{number}", dice.random() < 0.7
        length = dice.randint(1, 2 * size) if urgent else dice.randint(world.context_len // 2, world.context_len)
        tokens = tuple(dice.choice((0, 0, 1)) for _ in range(min(length, world.context_len - 1)))
        program.append(Arrive(req, tokens, outputs=dice.randint(1, 4 * size), priority=0 if urgent else 1))
        program += [Turn()] * dice.randrange(3)
        program += dice.choice(([], [], [], [Abort(req)], [Flush()]))
    return setting, program


def shrink(setting: Setting, program: list[Move], rule: str) -> tuple[Setting, list[Move]]:
    """The shortest program met that breaks this rule: moves dropped, requests shortened, the pool fitted."""
    tried = product(simpler(program), near(setting.world))
    while trial := next(tried, None):
        fewer, world = trial
        if any(isinstance(move, Arrive) and len(move.tokens) >= world.context_len for move in fewer):
            continue  # vLLM turns such a prompt away at its door
        found, _ = run(setting._replace(world=world), fewer)
        if found is not None and found.rule == rule:
            setting, program = setting._replace(world=world), fewer
            tried = product(simpler(program), near(setting.world))
    return setting, program


def simpler(program: Sequence[Move]) -> Iterator[list[Move]]:
    """Programs that are a little shorter: without some moves in a row, or with less of one request."""
    for width in (8, 4, 2, 1):
        yield from ([*program[:at], *program[at + width :]] for at in range(0, len(program), width))
    for at, move in enumerate(program):
        if isinstance(move, Arrive):
            for less in {len(move.tokens) // 2, 1} - {0, len(move.tokens)}:
                yield [*program[:at], move._replace(tokens=move.tokens[:-less]), *program[at + 1 :]]
            if move.outputs > 1:
                yield [*program[:at], move._replace(outputs=move.outputs - 1), *program[at + 1 :]]


def near(world: World) -> Iterator[World]:
    """The same world, then with fewer pages, or a few more: without some request the others fill another pool."""
    for pages in sorted(range(max(1, world.pages - 8), world.pages + 3), key=lambda pages: abs(world.pages - pages)):
        yield replace(world, pages=pages, context_len=min(world.context_len, pages * world.page_size))


def hunt(policy: str, first: int, programs: int, bar: Callable[[], object]) -> int:
    """Run so many programs, from this seed on. Exit 1 if a rule is broken, 0 if not. bar: called after each."""
    actions, broken = 0, list[tuple[int, int]]()
    for seed in range(first, first + programs):
        setting, program = drawn(policy, seed)
        finding, watch = run(setting, program)
        actions += len(watch.steps)
        broken += [(len(watch.steps), seed)] * (finding is not None)
        bar()
    if broken:
        print(screen(policy, min(broken)[1]))
    print(f"{actions:,} actions in {programs} programs from seed {first}: {len(broken)} programs break a rule")
    return 1 if broken else 0


def screen(policy: str, seed: int) -> str:
    """What a program breaks, shrunk, stored and shown."""
    setting, program = drawn(policy, seed)
    found, long = run(setting, program)
    assert found is not None, "the scheduler draws no lots: what broke once breaks again"
    setting, program = shrink(setting, program, found.rule)
    small, short = run(setting, program)
    assert small is not None, "what was kept broke"
    name = f"engines hunt vllm --policy {policy} --seed {seed} --programs 1"
    path = save(Shrunk(small, short.steps), setting.world, name, FULL)
    command = f"kvledger {name}"
    return show(Screen(setting.world, short.steps, small, command, None, trace=path, found_after=len(long.steps)))
