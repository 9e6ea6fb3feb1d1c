"""The ledger as the state of the rows, and an Edit that is watched: each of its methods is one step.

An action calls Edit's methods, and one of them may call another. What is written between two calls belongs to the
method that runs then, so each change of the ledger is of exactly one step. A step that writes nothing keeps every law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from kvledger.proofs.rows_logic import NOTHING, Explored, Term
from kvledger.proofs.rows_state import FIELDS, with_ghosts
from kvledger.spec.edit import Edit
from kvledger.spec.ledger import Ledger
from kvledger.spec.page import CACHED, FREE, PRIVATE, pages_for, whole_pages
from kvledger.spec.world import World

Said = dict[str, Term]


class Watched(NamedTuple):
    """One step: its name, the ledger before, what it was called with, the ledger after."""

    step: str
    before: Ledger
    arguments: tuple[Any, ...]
    after: Ledger


class WatchedEdit(Edit):
    """An Edit that keeps what each of its methods wrote, in order."""

    def __init__(self, ledger: Ledger, *, in_place: bool = False) -> None:
        super().__init__(ledger, in_place=in_place)
        self.steps: list[Watched] = []
        self._running: list[tuple[str, tuple[Any, ...]]] = []
        self._last = ledger

    def seen(self) -> list[Watched]:
        """The steps, with what was written outside of any method as a step without a name."""
        self._note()
        return self.steps

    def _note(self) -> None:
        """What was written since the last call began or ended is of the method that runs now."""
        now = Edit(self.commit()).commit()  # a copy: this Edit goes on writing into its own
        if now != self._last:
            name, arguments = self._running[-1] if self._running else ("", ())
            self.steps.append(Watched(name, self._last, arguments, now))
            self._last = now


def _watch(name: str) -> Callable[..., None]:
    method = getattr(Edit, name)

    def watched(self: WatchedEdit, *arguments: Any) -> None:
        self._note()
        self._running.append((name, arguments))
        method(self, *arguments)
        self._note()
        self._running.pop()

    return watched


METHODS = tuple(name for name in vars(Edit) if not name.startswith("_") and name != "commit")
for _name in METHODS:
    setattr(WatchedEdit, _name, _watch(_name))


# ---- the ledger, as tables


def state_of(ledger: Ledger) -> Said:
    """What the functions of rows_state say of this ledger, ghosts included."""
    size = ledger.world.page_size
    records, requests, pages = ledger.records, ledger.requests, ledger.pages
    cached = {page: state for page, state in pages.items() if state.kind == CACHED}
    private = {page: state for page, state in pages.items() if state.kind == PRIVATE}
    keys = {state.owner for state in cached.values()} | ledger.index.keys()
    return with_ghosts({
        "lives": dict.fromkeys(requests, True),
        "talks": {req: request.session is not None for req, request in requests.items()},
        "of": {req: request.session for req, request in requests.items()},
        "session": dict.fromkeys(ledger.sessions, True),
        "admitted": dict.fromkeys(ledger.admitted, True),
        "found": {req: len(match) for req, match in ledger.admitted.items()},
        "match": {(req, k): page for req, match in ledger.admitted.items() for k, page in enumerate(match)},
        "holds": dict.fromkeys(records, True),
        "row": {holder: record.row for holder, record in records.items()},
        "protected": {holder: record.protected_len // size for holder, record in records.items()},
        "whole": {holder: whole_pages(record.committed_len, size) for holder, record in records.items()},
        "committed": {holder: pages_for(record.committed_len, size) for holder, record in records.items()},
        "allocated": {holder: pages_for(record.allocated_len, size) for holder, record in records.items()},
        "table": {(holder, k): page for holder, table in ledger.tables.items() for k, page in enumerate(table)},
        "reads": {(holder, page): True for holder, lock in ledger.locks.items() for page in lock},
        "kind": {page: state.kind for page, state in pages.items()},
        "at": {page: state.owner for page, state in private.items()},
        "ordinal": {page: state.ordinal for page, state in pages.items()},
        "key": {page: state.owner for page, state in cached.items()},
        "locks": {page: state.locks for page, state in pages.items()},
        "listed": {(key, page): True for key, entry in ledger.index.items() for page in entry.pages},
        "depth": {key: _depth(ledger, key) for key in keys},
        "duplicates": ledger.world.has("DUPLICATES"),
    })  # fmt: skip


def _depth(ledger: Ledger, key: int) -> int:
    """How many pages come before the one that this key names."""
    tokens, names = -1 - ledger.world.declared.key_lag, ledger.names
    while key:
        key, tokens = names.before(key), tokens + 1
    return tokens // ledger.world.page_size - 1


def logic_of(world: World, *said: Said) -> Explored:
    """Every holder, row, page, key and number that this world has and these states know."""
    holders, rows, pages, keys, most = set[str](), set[int](), set(range(1, world.pages + 1)), set[int](), 1
    for each in said:
        holders |= each["lives"].keys() | each["session"].keys() | each["holds"].keys() | each["admitted"].keys()
        holders |= {holder for holder, _ in each["reads"]}
        rows |= set(each["row"].values()) | set(each["at"].values())
        pages |= each["kind"].keys() | set(each["table"].values()) | {page for _, page in each["reads"]}
        pages |= {page for _, page in each["listed"]}
        keys |= {key for key, _ in each["listed"]} | set(each["key"].values())
        most = max(most, *each["allocated"].values(), *each["found"].values(), *each["locks"].values(), 0)
    return Explored({
        "holder": sorted(holders), "row": sorted(rows), "page": sorted(pages), "key": sorted(keys),
        "number": range(most + 2), "truth": (False, True),
    })  # fmt: skip


# ---- what a step was called with, as its parameters


def parameters_of(watched: Watched) -> Said:
    """The parameters of rows_steps, from the arguments of Edit's method and the ledger before."""
    return _PARAMETERS[watched.step](watched.before, *watched.arguments)


def _listed(pages: tuple[int, ...], first: int = 0) -> dict[int, int]:
    return dict(enumerate(pages, first))


def _upto(ledger: Ledger, upto: int) -> Said:
    size = ledger.world.page_size
    return {"whole": whole_pages(upto, size), "committed": pages_for(upto, size)}


def _submit(ledger: Ledger, req: str, request: Any) -> Said:
    return {"req": req, "talks": request.session is not None, "of": request.session}


def _admit(ledger: Ledger, req: str, matched: tuple[int, ...]) -> Said:
    return {"req": req, "found": len(matched), "match": _listed(matched)}


def _start(ledger: Ledger, req: str, row: int, matched: tuple[int, ...], pages: tuple[int, ...], upto: int) -> Said:
    return _admit(ledger, req, matched) | _upto(ledger, upto) | {"row": row, "fresh": _listed(pages, len(matched))}


def _grow(ledger: Ledger, req: str, pages: tuple[int, ...], upto: int) -> Said:
    return {"req": req, "fresh": _listed(pages, len(ledger.tables[req]))} | _upto(ledger, upto)


def _reserve(ledger: Ledger, req: str, pages: tuple[int, ...], upto: int) -> Said:
    grown = {"req": req, "fresh": _listed(pages, len(ledger.tables[req]))}
    return grown | {"allocated": pages_for(upto, ledger.world.page_size)}


def _accept(ledger: Ledger, req: str, tokens: tuple[Any, ...]) -> Said:
    return {"req": req} | _upto(ledger, ledger.records[req].committed_len + len(tokens))


def _publish(ledger: Ledger, req: str, pages: tuple[int, ...]) -> Said:
    first = ledger.records[req].protected_len // ledger.world.page_size
    upto = first + len(pages)
    names = {k: ledger.key(ledger.requests[req], k) for k in range(first, upto)}
    return {"req": req, "upto": upto, "stays": _listed(pages, first), "name": names}


def _cut(ledger: Ledger, holder: str, upto: int) -> Said:
    return {"holder": holder} | _upto(ledger, upto)


def _turn(ledger: Ledger, req: str, keep: int = 0) -> Said:
    return {"req": req, "session": ledger.requests[req].session}


def _evict(ledger: Ledger, pages: Any) -> Said:
    return {"gone": dict.fromkeys(pages, True)}


_PARAMETERS: dict[str, Callable[..., Said]] = {
    "submit": _submit, "admit": _admit, "defer": lambda _, req: {"req": req}, "start": _start, "grow": _grow,
    "reserve": _reserve, "accept": _accept, "publish": _publish, "cut": _cut, "take_up": _turn, "hand_over": _turn,
    "release": lambda _, holder: {"holder": holder}, "forget": lambda _, req: {"req": req},
    "close": lambda _, session: {"session": session}, "evict": _evict,
}  # fmt: skip


# ---- one field, changed


def changes(said: Said, there: Explored) -> Iterator[tuple[str, Said]]:
    """Every state that differs from this one at one place of one field, with the place in words. Only where a field
    means something: a length, of who holds a row; a key, of a cached page."""
    of = there.values
    live, holding, admitted = said["lives"], said["holds"], said["admitted"]
    private = [page for page, kind in said["kind"].items() if kind == PRIVATE]
    cached = [page for page, kind in said["kind"].items() if kind == CACHED]
    places: dict[str, Iterable[Any]] = {
        "lives": of["holder"], "talks": live, "of": [req for req in live if said["talks"][req]],
        "session": of["holder"], "admitted": of["holder"], "found": admitted, "match": said["match"],
        "holds": of["holder"], "row": holding, "protected": holding, "whole": holding, "committed": holding,
        "allocated": holding, "table": said["table"], "reads": product(of["holder"], of["page"]),
        "kind": of["page"], "at": private, "ordinal": private, "key": cached, "locks": of["page"],
        "listed": product(of["key"], of["page"]),
    }  # fmt: skip
    for field, (*_, sort) in FIELDS.items():
        values = (FREE, PRIVATE, CACHED) if field == "kind" else of[sort]
        for place in places[field]:
            now = said[field].get(place, NOTHING.get(sort))
            for other in values:
                if other != now:
                    yield f"{field} of {place}: {other}, not {now}", {**said, field: {**said[field], place: other}}
