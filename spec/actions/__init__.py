"""The actions, one file each: requires, judge, effect, answers. Here only their data: what a caller says."""

from __future__ import annotations

from typing import TypeAlias

from kvledger.spec.actions.abort import Abort
from kvledger.spec.actions.admit import Admit
from kvledger.spec.actions.checkpoint import Checkpoint
from kvledger.spec.actions.close import Close
from kvledger.spec.actions.commit import Commit
from kvledger.spec.actions.decode import Decode
from kvledger.spec.actions.defer import Defer
from kvledger.spec.actions.evict import Evict
from kvledger.spec.actions.extend import Extend
from kvledger.spec.actions.finish import Finish
from kvledger.spec.actions.flush import Flush
from kvledger.spec.actions.match_prefix import MatchPrefix
from kvledger.spec.actions.reserve import Reserve
from kvledger.spec.actions.retract import Retract
from kvledger.spec.actions.submit import Submit

Action: TypeAlias = (
    Submit | Admit | Defer | MatchPrefix | Extend | Decode | Reserve | Commit | Checkpoint | Finish | Retract | Abort
    | Close | Evict | Flush
)  # fmt: skip

__all__ = ["Abort", "Action", "Admit", "Checkpoint", "Close", "Commit", "Decode", "Defer", "Evict", "Extend", "Finish",
           "Flush", "MatchPrefix", "Reserve", "Retract", "Submit"]  # fmt: skip
