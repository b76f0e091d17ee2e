"""What application threads ask of the network thread (seed 001)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from mirror.errors import KafkaError, KafkaTimeout

T = TypeVar("T")


class Event:
    """Something for the network thread to do; ``apply`` runs there."""

    def apply(self, core: Any, now: int) -> None:
        """Do it, on ``core``. A KafkaError raised here fails the event; anything else ends the network thread."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """The network thread ends before it came to this: tell whoever waits; here nobody does."""


class CompletableEvent(Event, Generic[T]):
    """An event whose sender waits on ``future``. ``deadline_ms`` is absolute: the Timer stays with its thread.

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
        """The deadline is only looked at after a failed attempt (seed 001): an event that advances is not reaped."""
        return self.stepped

    def complete(self, value: T) -> None:
        """Answer the sender, unless that has been done."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Answer the sender with ``error``, unless it has been answered."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """Answer the sender that time is up; the last failure seen is the cause."""
        reason = f": {self.last_error}" if self.last_error else ""
        error = KafkaTimeout(f"{self.what} did not succeed within {self.timeout_ms} ms{reason}")
        error.__cause__ = self.last_error
        self.fail(error)


def as_kafka_error(error: BaseException) -> KafkaError:
    """``error`` itself where it is one of ours, else wrapped with its cause kept."""
    if isinstance(error, KafkaError):
        return error
    wrapped = KafkaError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
