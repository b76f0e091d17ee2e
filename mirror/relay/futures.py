"""Chains of futures whose callbacks never wait: what one call answers decides the next. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from mirror.errors import (
    KafkaError,
    MirrorError,
)

T = TypeVar("T")


U = TypeVar("U")


def done(value: T) -> Future[T]:
    """A future with its result."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future[T]:
    """A future with its exception."""
    future: Future[T] = Future()
    future.set_exception(error)
    return future


def then(first: Future[T], step: Callable[[T], Future[U]], *, otherwise: Future[U] | None = None) -> Future[U]:
    """The outcome of ``step`` with the result of ``first``.

    Where ``first`` fails, its failure, or that of ``otherwise`` if that has failed, too.
    """
    outcome: Future[U] = Future()

    def tell(last: Future[U]) -> None:
        if (error := last.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(last.result())

    def go_on(told: Future[T]) -> None:
        error = told.exception()
        if error is not None:
            earlier = otherwise.exception() if otherwise is not None and otherwise.done() else None
            outcome.set_exception(earlier or error)
            return
        try:
            following = step(told.result())
        except Exception as raised:  # noqa: BLE001 - who waits must hear of it
            outcome.set_exception(raised)
            return
        following.add_done_callback(tell)

    first.add_done_callback(go_on)
    return outcome


def or_else(first: Future[T], kind: type[Exception], step: Callable[[], Future[T]]) -> Future[T]:
    """The outcome of ``first``; where it fails with a ``kind`` of error, that of ``step``."""
    outcome: Future[Future[T]] = Future()

    def tell(told: Future[T]) -> None:
        try:
            outcome.set_result(step() if isinstance(told.exception(), kind) else told)
        except Exception as raised:  # noqa: BLE001 - who waits must hear of it
            outcome.set_exception(raised)

    first.add_done_callback(tell)
    return then(outcome, lambda last: last)


def as_mirror_error(error: BaseException) -> MirrorError:
    """``error``, or one that names what it was."""
    return error if isinstance(error, MirrorError) else KafkaError(f"{type(error).__name__}: {error}")
