"""Two attempts at one task at once: the one that was shut out leaves the answer to the other.

Spark runs them where it speculates, takes the first answer for both, and kills the other. The attempt that came later
has fenced the earlier one; if that one answered ``fenced`` at once, the one that copies would be killed for it. So it
waits to be killed itself, as long as there are signs that somebody of its own run goes on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress.committed import ProgressStore
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import Admin
    from mirror.relay.model.ranges import Range
    from mirror.relay.progress.control import RunControl
    from mirror.spark.datasource.rows import TaskSpec
    from mirror.timing import Clock

LOOK_MS: Final = 1_000


class OtherAttempt:
    """The other attempt, as far as the target shows it."""

    def __init__(self, admin: Admin, flow: str, errand: TaskSpec, fenced: Collection[Range]) -> None:
        """``fenced`` are the ranges that it has taken over, ``admin`` is the target's."""
        self._orders: Final = RunControlClient(admin, flow, errand.run)
        self._store: Final = ProgressStore(admin, flow)
        self._targets: Final = [TopicPartition(one.target_topic, one.partition) for one in fenced]

    def orders(self) -> RunControl | None:
        """Those in force. Raises KafkaError."""
        return self._orders.read()

    def offsets(self) -> dict[TopicPartition, int]:
        """The progress of what it has taken over. Raises KafkaError."""
        return {tp: progress.offset for tp, progress in self._store.read(self._targets).items()}


def wait_for_other_attempt(
    twin: OtherAttempt,
    errand: TaskSpec,
    *,
    patience_ms: int,
    clock: Clock,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return when no answer of ``twin`` is to be expected: usually this process is killed before.

    That is where another run has taken over; or ``patience_ms`` after the last sign: the epoch goes on (of a stream),
    progress is made (of a scheduled run).
    """
    hopeless_at = clock.now() + patience_ms
    seen: Mapping[TopicPartition, int] | None = None
    while clock.now() < hopeless_at:
        pause(LOOK_MS / 1000)
        try:
            told = twin.orders()
            if told is None or told.fences(errand.run):
                return
            if errand.until_ms is None:
                before, seen = seen, twin.offsets()
                alive = seen != before
            else:
                alive = clock.unix_ms() < errand.until_ms and told.ends(errand.run, errand.epoch) is None
        except KafkaError:
            continue
        if alive:
            hopeless_at = clock.now() + patience_ms
