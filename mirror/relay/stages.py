"""What a copy waits for, and how often it is tried again."""

from __future__ import annotations

import enum
from typing import Final

from mirror.relay.story import Phase

DROP_MS: Final = 5_000
"""How long a dropped transaction's abort is waited for; after that its end is left to the next attempt, or to time."""
REST_MS: Final = 15_000
"""Before a partition that is followed, and has failed, is tried again: a source that was away may be back."""
EPOCH_ENDED: Final = "the epoch ended before it was complete"
ABORTS: Final = 3
"""So often in a row a transaction that brokers could not end is begun anew."""
LOOKS: Final = 3
"""A source that says "not here", and on being asked that nothing is missing, is believed no more often in a row."""

FETCHED_AGAIN: Final = 2
"""So often is fetched again what turned out to be damaged."""


class Stage(enum.Enum):
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
    Stage.OPENING: Phase.FENCING,
    Stage.SETTLING: Phase.SETTLING,
    Stage.LOOKING: Phase.LOOKING,
    Stage.DROPPING: Phase.ABORTING,
    Stage.RESTING: Phase.RESTING,
}
"""As its story tells it; who copies has phases of its own."""
