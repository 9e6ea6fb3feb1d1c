"""The actions, one file each: requires, judge, effect, answers. Here only their data: what a caller says."""

from __future__ import annotations

from typing import TypeAlias

from kvledger.spec.actions.abort import Abort
from kvledger.spec.actions.checkpoint import Checkpoint
from kvledger.spec.actions.decode import Decode
from kvledger.spec.actions.evict import Evict
from kvledger.spec.actions.extend import Extend
from kvledger.spec.actions.finish import Finish
from kvledger.spec.actions.flush import Flush
from kvledger.spec.actions.retract import Retract
from kvledger.spec.actions.submit import Submit

Action: TypeAlias = Submit | Extend | Decode | Checkpoint | Finish | Retract | Abort | Evict | Flush

__all__ = ["Abort", "Action", "Checkpoint", "Decode", "Evict", "Extend", "Finish", "Flush", "Retract", "Submit"]
