"""What a copy waits for, and how often it is tried again."""

from __future__ import annotations

import enum
from typing import Final

from mirror.relay.model.timeline import CopyPhase

DROP_MS: Final = 5_000
"""How long a dropped transaction's abort is waited for; after that its end is left to the next attempt, or to time."""
REST_MS: Final = 15_000
"""Before a partition that is followed, and has failed, is tried again: a source that was away may be back."""
EPOCH_ENDED: Final = "the epoch ended before it was complete"
WAITED_FOR: Final = {
    CopyPhase.FENCING: "the target's transaction coordinator",
    CopyPhase.SETTLING: "the leader of the target partition",
    CopyPhase.FETCHING: "the source",
    CopyPhase.MEMORY: "room in buffer.memory",
    CopyPhase.PRODUCING: "the target's acknowledgements",
    CopyPhase.COMMITTING: "the end of its transaction",
    CopyPhase.LOOKING: "the source, to learn why it does not have what comes next",
}
"""What a copy waits for in each phase, in which that is not itself."""
OF_TARGET: Final = frozenset(
    {CopyPhase.FENCING, CopyPhase.SETTLING, CopyPhase.MEMORY, CopyPhase.PRODUCING, CopyPhase.COMMITTING}
)
"""The phases in which it waits for the target."""
ABORTS: Final = 3
"""So often in a row a transaction that brokers could not end is begun anew."""
LOOKS: Final = 3
"""A source that says "not here", and on being asked that nothing is missing, is believed no more often in a row."""

FETCHED_AGAIN: Final = 2
"""So often is fetched again what turned out to be damaged."""


def unfinished(why: str) -> str:
    """The error of a copy whose epoch ended first; ``why`` (or "") is what kept it until then."""
    return f"{EPOCH_ENDED}: {why}" if why else EPOCH_ENDED


class CopyState(enum.Enum):
    """What a copy waits for."""

    __hash__ = object.__hash__  # Enum's is a Python function, and this is asked at every step

    OPENING = "opening"
    SETTLING = "settling"
    COPYING = "copying"
    LOOKING = "looking"
    DROPPING = "dropping"
    RESTING = "resting"
    DONE = "done"


PHASES: Final = {
    CopyState.OPENING: CopyPhase.FENCING,
    CopyState.SETTLING: CopyPhase.SETTLING,
    CopyState.LOOKING: CopyPhase.LOOKING,
    CopyState.DROPPING: CopyPhase.ABORTING,
    CopyState.RESTING: CopyPhase.RESTING,
}
"""As its story tells it; who copies has phases of its own."""
