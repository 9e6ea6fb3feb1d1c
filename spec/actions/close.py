"""close: a conversation is over, and its session's record comes back. While a turn lives it waits for the turn's end.

SGLang: SessionController.close, StreamingSession.release_session.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.spec.world import SessionId


class Close(NamedTuple):
    """The session to close."""

    session: SessionId
