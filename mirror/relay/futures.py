"""Chains of futures whose callbacks never block: the result of one call decides the next call. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from mirror.errors import (
    KafkaError,
    MirrorError,
)

T = TypeVar("T")


U = TypeVar("U")


def done(value: T) -> Future[T]:
    """Return a future that already has the result ``value``."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future[T]:
    """Return a future that has already failed with ``error``."""
    future: Future[T] = Future()
    future.set_exception(error)
    return future


def then(first: Future[T], step: Callable[[T], Future[U]], *, otherwise: Future[U] | None = None) -> Future[U]:
    """Call ``step`` with the result of ``first``, and return a future for the outcome of that.

    If ``first`` fails, the returned future fails with the error of ``otherwise`` if that has failed, too, and with the
    error of ``first`` otherwise.
    """
    outcome: Future[U] = Future()

    def run_step(completed: Future[T]) -> None:
        error = completed.exception()
        if error is not None:
            earlier = otherwise.exception() if otherwise is not None and otherwise.done() else None
            outcome.set_exception(earlier or error)
            return
        try:
            following = step(completed.result())
        except Exception as raised:  # noqa: BLE001 - it is passed on to whatever waits for the outcome
            outcome.set_exception(raised)
            return
        following.add_done_callback(partial(_copy_outcome, outcome))

    first.add_done_callback(run_step)
    return outcome


def _copy_outcome(outcome: Future[T], last: Future[T]) -> None:
    if (error := last.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(last.result())


def or_else(first: Future[T], kind: type[Exception], step: Callable[[], Future[T]]) -> Future[T]:
    """Return the outcome of ``first``, or that of ``step()`` if ``first`` fails with a ``kind`` of error."""
    outcome: Future[T] = Future()

    def choose(completed: Future[T]) -> None:
        try:
            following = step() if isinstance(completed.exception(), kind) else completed
        except Exception as raised:  # noqa: BLE001 - it is passed on to whatever waits for the outcome
            outcome.set_exception(raised)
            return
        # The outcome must not refer to ``first``, which keeps this callback: such a cycle is left for the collector.
        following.add_done_callback(partial(_copy_outcome, outcome))

    first.add_done_callback(choose)
    return outcome


def with_error(first: Future[T], change: Callable[[BaseException], BaseException]) -> Future[T]:
    """Return the outcome of ``first``; if it fails, with the error that ``change`` returns for its own."""
    outcome: Future[T] = Future()

    def pass_on(completed: Future[T]) -> None:
        if (error := completed.exception()) is not None:
            outcome.set_exception(change(error))
        else:
            outcome.set_result(completed.result())

    first.add_done_callback(pass_on)
    return outcome


def as_mirror_error(error: BaseException) -> MirrorError:
    """Return ``error``, wrapped into a KafkaError that names its type unless it is a MirrorError."""
    return error if isinstance(error, MirrorError) else KafkaError(f"{type(error).__name__}: {error}")
