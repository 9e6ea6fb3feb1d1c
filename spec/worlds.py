"""Small worlds with a name, and what exploration may submit in each: what makes a world finite."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvledger.spec.world import CAPABILITIES, UNCOMMON, Declaration, Namespace, ReqId, SessionId, Token, World


@dataclass(frozen=True)
class Scope:
    """What exploration may submit: makes a world finite.

    requests: the ids that may live at once. prompts: what each may bring. letters: what may be sampled.
    match_limits, publish, sessions: the options a submit may carry. max_kv: positions with KV, a request.
    drafts: how many slots a reserve may ask for.
    """

    requests: tuple[ReqId, ...]
    prompts: tuple[tuple[Token, ...], ...]
    letters: tuple[Token, ...]
    max_kv: int
    namespaces: tuple[Namespace, ...] = ("n",)
    match_limits: tuple[int | None, ...] = (None,)
    publish: tuple[bool, ...] = (True,)
    sessions: tuple[SessionId | None, ...] = (None,)
    drafts: tuple[int, ...] = ()


PLAIN = Declaration("sglang's shape")
KEPT = Declaration(
    "vllm's shape",
    capabilities=frozenset(CAPABILITIES) - UNCOMMON - {"LEAF_FIRST", "CHECKPOINT"} | {"DUPLICATES"},
    publishes_on=frozenset({"extend", "decode"}),
    max_batch=1,
)
HELD_BACK = Declaration("headroom and back-off", headroom=1, match_backoff=1)
BIGRAM = Declaration("bigram keys", key_lag=1)
SPECULATIVE = replace(PLAIN, name="drafts", capabilities=PLAIN.capabilities | {"DRAFTS"})
TALKING = replace(PLAIN, name="sessions", capabilities=PLAIN.capabilities | {"SESSIONS"})
SPLIT = replace(PLAIN, name="admission apart", capabilities=PLAIN.capabilities | {"SPLIT_ADMIT"})
ALL = PLAIN.capabilities | {"DRAFTS", "SESSIONS", "SPLIT_ADMIT"}
JOINT = replace(PLAIN, name="all of sglang's shape", capabilities=ALL)
A3, B3 = ("a", "a", "a"), ("a", "a", "b")
TWO = ("r0", "r1")

# Named worlds. Together they reach every situation of spec/situations.py.
WORLDS: dict[str, tuple[World, Scope]] = {
    "TINY_A": (World(2, 4, 3, 2, PLAIN), Scope(TWO, (A3, B3), ("a",), max_kv=4)),
    "TINY_B": (World(1, 4, 2, 2, PLAIN), Scope(TWO, (A3, B3), ("a",), max_kv=4)),
    "NAMESPACES": (World(2, 4, 3, 2, PLAIN), Scope(TWO, (A3,), ("a",), max_kv=4, namespaces=("n", "m"))),
    "DUPLICATES": (World(2, 4, 4, 2, KEPT), Scope(TWO, (A3, ("a",) * 5), ("a",), max_kv=4)),
    "BACKOFF": (
        World(2, 3, 4, 1, HELD_BACK),
        Scope(TWO, (A3,), ("a",), max_kv=3, match_limits=(None, 1), publish=(True, False)),
    ),
    "KEY_LAG": (World(2, 4, 5, 1, BIGRAM), Scope(TWO, (A3, B3), ("a",), max_kv=4)),
    "DRAFTS": (World(2, 5, 4, 2, SPECULATIVE), Scope(TWO, (A3,), ("a",), max_kv=5, drafts=(1, 2))),
    "SESSIONS": (World(2, 4, 4, 2, TALKING), Scope(TWO, (A3, ("a",) * 4), ("a",), max_kv=4, sessions=(None, "s"))),
    "SMALL": (World(2, 4, 2, 2, JOINT), Scope(TWO, (A3,), ("a",), max_kv=4, drafts=(1,), sessions=(None, "s"))),
    "SPLIT_ADMIT": (World(2, 4, 3, 2, SPLIT), Scope(TWO, (A3, B3), ("a",), max_kv=4)),
}

# What takes a minute: SMALL, and a third request. `kvledger explore THREE`, `kvledger prove three`.
LARGE: dict[str, tuple[World, Scope]] = {
    "THREE": (
        World(2, 4, 2, 2, JOINT),
        Scope((*TWO, "r2"), (A3,), ("a",), max_kv=4, drafts=(1,), sessions=(None, "s")),
    ),
}
