"""Speculative execution: of two attempts at a task, the fenced one leaves the result to the other.

Spark takes the result of the attempt that ends first, and kills the other one. The attempt that started later has
fenced the earlier one. If the earlier one returned ``fenced`` immediately, Spark would kill the attempt that copies. So
the fenced attempt waits to be killed itself, for as long as there are signs that the other one of its run is alive. At
the end of a stream's epoch both return, and the wait is short: the next epoch begins only once all tasks have returned.
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
    from mirror.spark.datasource.task_spec import TaskSpec
    from mirror.timing import Clock

POLL_MS: Final = 1_000


class OtherAttempt:
    """The other attempt, as far as the target shows it."""

    def __init__(self, admin: Admin, flow: str, spec: TaskSpec, fenced: Collection[Range]) -> None:
        """``admin`` is the target's; ``fenced`` are the ranges that the other attempt has taken over."""
        self._control: Final = RunControlClient(admin, flow, spec.run)
        self._store: Final = ProgressStore(admin, flow)
        self._targets: Final = [TopicPartition(range_.target_topic, range_.partition) for range_ in fenced]

    def control(self) -> RunControl | None:
        """Return the flow's control record. Raises KafkaError."""
        return self._control.read()

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the progress of the ranges that the other attempt has taken over. Raises KafkaError."""
        return {tp: progress.offset for tp, progress in self._store.read(self._targets).items()}


def wait_for_other_attempt(
    other: OtherAttempt,
    spec: TaskSpec,
    *,
    timeout_ms: int,
    clock: Clock,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the other attempt shows no sign of life. Spark normally kills this process first.

    The wait ends if another run takes over, soon after the end of a stream's epoch, or ``timeout_ms`` after the last
    sign of life: in a stream the epoch has not ended yet, in a scheduled run progress was made.
    """
    deadline_ms = clock.now() + timeout_ms
    offsets: Mapping[TopicPartition, int] | None = None
    while clock.now() < deadline_ms:
        pause(POLL_MS / 1000)
        if spec.until_ms is not None and clock.unix_ms() >= spec.until_ms:
            break
        try:
            control = other.control()
            if control is None or control.other_run_active(spec.run):
                return
            if spec.until_ms is None:
                before, offsets = offsets, other.offsets()
                alive = offsets != before
            elif control.end_reason(spec.run, spec.epoch) is None:
                alive = True
            else:
                break
        except KafkaError:
            continue
        if alive:
            deadline_ms = clock.now() + timeout_ms
    if spec.until_ms is not None:
        pause(POLL_MS / 1000)  # the other attempt returns now, too, and Spark is to take its results
