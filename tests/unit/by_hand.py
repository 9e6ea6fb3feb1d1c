"""The reference driven by hand: an action that must be granted, a request that starts, and books that add up."""

from __future__ import annotations

from collections import Counter

from kvledger.reference.backend import Backend
from kvledger.spec.actions import Action, Extend, Submit
from kvledger.spec.backend import RecordView, Reply, Totals


def ok(backend: Backend, action: Action) -> Reply:
    """Perform an action that must be granted; the books add up afterwards."""
    answer = backend.do(action)
    assert isinstance(answer, Reply), (action, answer)
    adds_up(backend)
    return answer


def start(backend: Backend, req: str, tokens: str, namespace: str = "n", **options: object) -> Reply:
    """Submit a request, a letter a token, and compute all of it; it samples "z"."""
    ok(backend, Submit(req, tuple(tokens), namespace, **options))  # type: ignore[arg-type]
    return ok(backend, Extend(((req, len(tokens), "z"),)))


def records(backend: Backend) -> dict[str, RecordView]:
    """Whoever holds a record: its row, and protected, committed and allocated length."""
    return dict(backend.view().records or {})


def adds_up(backend: Backend) -> None:
    """Every page is free, private to one holder or cached; every row free or held; every lock has its reader."""
    view, size, world = backend.view(), backend.world.page_size, backend.world
    assert view.records is not None and view.table is not None and view.cached is not None
    assert view.free_pages is not None and view.free_rows is not None
    private: list[int] = []
    reading: Counter[int] = Counter()
    for holder, (_, protected, committed, allocated) in view.records.items():
        assert 0 <= protected <= committed <= allocated <= world.context_len and protected % size == 0, holder
        slots = view.table[holder]
        assert [slot % size for slot in slots] == [position % size for position in range(allocated)], holder
        private += [slot // size for slot in slots[protected::size]]
        reading.update(slot // size for slot in slots[:protected:size])
    for req in backend.reqs.values():
        if req.match is not None and (req.session is None or req.session not in view.records):
            reading.update(slot // size for slot in req.match.device_indices[::size])
    assert sorted([*view.free_pages, *private, *view.cached]) == list(range(1, world.pages + 1))
    rows = [record.row or 0 for record in view.records.values()]
    assert sorted([*view.free_rows, *rows]) == list(range(1, world.rows + 1))
    locks = {page: shown.locks for page, shown in view.cached.items()}
    assert locks == {page: reading[page] for page in view.cached} and not reading.keys() - locks.keys()
    locked = sum(count > 0 for count in locks.values())
    assert view.totals == Totals(len(view.free_pages), len(locks) - locked, locked, len(private))
