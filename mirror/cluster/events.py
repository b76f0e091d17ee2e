"""The events that application threads send to the network thread (AsyncKafkaConsumer design). No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from mirror.errors import KafkaError, KafkaTimeout

T = TypeVar("T")


class Event:
    """Work for the network thread, on which ``apply`` runs."""

    def apply(self, core: Any, now: int) -> None:
        """Apply the event to ``core``. A KafkaError fails the event; any other exception ends the network thread."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Fail the callers that wait, as the network thread ends before the event; here none does."""


class CompletableEvent(Event, Generic[T]):
    """An event whose sender waits on ``future``. ``deadline_ms`` is absolute, as the Timer belongs to the sender.

    ``stepped`` is True between a successful step and the next attempt.
    """

    def __init__(self, what: str, deadline_ms: int, timeout_ms: int) -> None:
        self.what = what
        self.future: Future[T] = Future()
        self.deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.last_error: BaseException | None = None
        self.stepped = False

    @property
    def advancing(self) -> bool:
        """Whether the last step succeeded: the deadline is only checked after a failed attempt (timeout design)."""
        return self.stepped

    def complete(self, value: T) -> None:
        """Complete the future, unless it is done."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Fail the future with ``error``, unless it is done."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """Fail the future by timeout; the last error is the cause."""
        reason = f": {self.last_error}" if self.last_error else ""
        error = KafkaTimeout(f"{self.what} did not succeed within {self.timeout_ms} ms{reason}")
        error.__cause__ = self.last_error
        self.fail(error)


class FailEvents(Event):
    """Fail events whose callers have left, on the network thread, which alone completes the events that it has."""

    def __init__(self, failures: Iterable[tuple[CompletableEvent[Any], KafkaError]]) -> None:
        self._failures = tuple(failures)

    def apply(self, core: object, now: int) -> None:
        """Fail them; their holders drop events that are done."""
        del core, now
        for event, error in self._failures:
            event.fail(error)


def as_kafka_error(error: BaseException) -> KafkaError:
    """Return ``error`` if it is a KafkaError, otherwise one that has it as its cause."""
    if isinstance(error, KafkaError):
        return error
    wrapped = KafkaError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
