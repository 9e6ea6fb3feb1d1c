"""What somebody who was there would tell of a ledger: the snapshot from which it can be opened again."""

from __future__ import annotations

from kvledger.spec.actions import Submit
from kvledger.spec.backend import RecordView
from kvledger.spec.ledger import Ledger, Root, Tag, slots_in
from kvledger.spec.snapshot import Node, Snapshot, Talk
from kvledger.spec.world import Token


def told(ledger: Ledger) -> Snapshot:
    """Tokens and namespaces are spelled out again; a key is a node by itself, whose parent is the key before it."""
    spelled = {tag: step for step, tag in ledger.names._tags.items()}

    def prefix(tag: Tag) -> tuple[Token, ...]:
        step = spelled[tag]
        return () if isinstance(step, Root) else (*prefix(step[0]), step[1])

    places, cached = dict[Tag, int](), list[Node]()
    for tag, entry in sorted(ledger.index.items(), key=lambda item: len(prefix(item[0]))):
        parent, root = places.get(entry.parent), spelled[entry.root]
        assert isinstance(root, Root)
        tokens = prefix(tag)[0 if parent is None else len(prefix(entry.parent)) :]
        places[tag] = len(cached)
        cached += [Node(tokens, (page,), parent, root.namespace) for page in sorted(entry.pages)]
    return Snapshot(
        [
            Submit(req, each.tokens, each.namespace, each.match_limit, each.publish, each.session)
            for req, each in ledger.requests.items()
        ],
        {name: Talk(each.tokens, each.namespace, *each[4:]) for name, each in ledger.sessions.items()},
        {holder: RecordView(*record) for holder, record in ledger.records.items()},
        {
            holder: slots_in(ledger.tables[holder], 0, record.allocated_len, ledger.world.page_size)
            for holder, record in ledger.records.items()
        },
        ledger.admitted,
        cached,
    )
