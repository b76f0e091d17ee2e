"""Ends a task: when its copies are done, or when the control record of its flow says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Final

from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.partition.limits import FAILURE_BACKOFF_MS
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.progress.control_record import Command, ControlWatch, RunControl
from mirror.timing import FOREVER_MS

_log: Final = logging.getLogger(__name__)


# Invariant: A followed copy does not end while its task lives: a fenced one waits until the control record names its
#   run, and the earlier one of two attempts of a task ends.
# Test: tests/relay/task/test_jobs_on_fakes.py::test_a_fenced_copy_waits_until_the_control_record_names_its_run
# Test: tests/relay/task/test_jobs_on_fakes.py::test_an_earlier_attempt_that_still_lives_ends_once_a_later_one_is_known
class TaskLifecycle:
    """The lifecycle of a task that lives until its ranges are done, or it is to stop.

    It stops in order: the copies commit what is acknowledged, and abort what is not committed within the wind-up time.
    """

    def __init__(
        self,
        policy: CopyPolicy,
        timeouts: CopyTimeouts,
        read_control: Callable[[], Future[RunControl | None]],
        on_command: Callable[[Command], object],
        now: Callable[[], int],
    ) -> None:
        """``read_control`` reads the control record of the flow's runs; ``on_command`` gets what does not stop it."""
        self.active: Final = set[PartitionCopy]()
        """The copies that are not done."""
        self.stop_reason = ""
        """Why the task is to stop; "": it is not."""
        self.wind_up_ms: Final = min(timeouts.request_timeout_ms, policy.wind_up_ms)
        self._policy: Final = policy
        self._control: Final = (
            ControlWatch(
                read_control,
                policy.run,
                policy.job,
                now(),
                generation=policy.generation,
                task=policy.task,
                attempt=policy.attempt,
            )
            if policy.run
            else None
        )
        self._on_command: Final = on_command
        self._now: Final = now
        self._abort_at = FOREVER_MS

    @property
    def lasts(self) -> bool:
        """Whether the task is not to stop: copies may begin."""
        return not self.stop_reason

    def may_retry(self) -> bool:
        """Whether to retry expired copies: until the task is to stop, while one is followed, or has not expired."""
        return self.lasts and any(copy.range.open_ended or not copy.expired for copy in self.active)

    def is_confirmed(self) -> bool:
        """Whether the control record, as read less than ``FAILURE_BACKOFF_MS`` ago, says that the task may continue.

        So what has fenced a copy that waits for so long is no other run.
        """
        return self._control is not None and self._now() - self._control.confirmed_ms < FAILURE_BACKOFF_MS

    def update(self, now: int) -> Collection[PartitionCopy]:
        """Stop if the control record says so; return the copies to step."""
        if self._control is not None and self.lasts and (command := self._control.poll(now)) is not None:
            if command.stop is not None:
                self.stop_reason, self._abort_at = command.reason(), now + self.wind_up_ms
                _log.info("job %d of run %s stops: %s", self._policy.job, self._policy.run, self.stop_reason)
                return self._wind_up(now, immediately=False)
            self._on_command(command)
        if now < self._abort_at:
            return ()
        self._abort_at = FOREVER_MS
        return self._wind_up(now, immediately=True)

    def _wind_up(self, now: int, *, immediately: bool) -> Collection[PartitionCopy]:
        ended = list(self.active)
        for copy in ended:
            copy.wind_up(now, immediately=immediately)
        return ended

    def due_ms(self) -> int:
        """Return when :meth:`update` has to be called next if nothing wakes the task before."""
        return min(self._abort_at, FOREVER_MS if self._control is None or not self.lasts else self._control.due_ms())
