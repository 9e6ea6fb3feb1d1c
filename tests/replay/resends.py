"""Exact resends pulled forward: the same prompt comes again while the first copy still runs."""

from __future__ import annotations

from collections.abc import Iterable

from kvledger.tests.replay.request import TraceRequest


def forward(requests: Iterable[TraceRequest]) -> list[TraceRequest]:
    """The same requests, but each that has an earlier one's prompt comes right behind that one, and waits for nobody
    but whom that waits for. A turn that goes on with its session stays where it is: its session has to be there."""
    groups: list[list[TraceRequest]] = []
    first: dict[tuple[int, ...], int] = {}
    begun: set[str] = set()
    for request in requests:
        goes_on = request.session in begun
        if request.session is not None:
            begun.add(request.session)
        at = first.setdefault(request.prompt, len(groups))
        if goes_on or at == len(groups):
            groups.append([request])
        else:
            groups[at].append(request._replace(after=groups[at][0].after))
    return [request for group in groups for request in group]
