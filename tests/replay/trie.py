"""Block ids form a trie: an id names its block and all before it, so it has one predecessor wherever it stands."""

from __future__ import annotations

from kvledger.spec.world import WrongInput


class Trie:
    """before: id -> the id before it; None: it comes first."""

    def __init__(self) -> None:
        self.before: dict[int, int | None] = {}

    def join(self, ids: list[int]) -> None:
        """Adds the ids of one prompt. Raises WrongInput for an id that stands twice, or elsewhere than it did."""
        if len(set(ids)) != len(ids):
            twice = next(ident for place, ident in enumerate(ids) if ident in ids[:place])
            raise WrongInput(f"id {twice} stands twice in hash_ids, expected each once")
        before: int | None = None
        for ident in ids:
            known = self.before.setdefault(ident, before)
            if known != before:
                raise WrongInput(f"id {ident} {_place(before)}, expected it {_place(known)}, as in an earlier prompt")
            before = ident


def _place(before: int | None) -> str:
    return "first" if before is None else f"after id {before}"
