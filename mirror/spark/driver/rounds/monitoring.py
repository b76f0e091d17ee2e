"""What goes on beside the copies of a stream, and ends with them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType


class Monitor(Protocol):
    """It runs in a thread while its block does."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def end(self, error: BaseException | None) -> None:
        """Have it end, which the end of its block waits for; ``error`` is what ends the block."""


@contextlib.contextmanager
def monitoring(monitors: Sequence[Monitor]) -> Iterator[None]:
    """Run all of them while the block does.

    They end at the same time: each may wait for a cluster that does not answer, and a failover waits for all of them.
    """
    with contextlib.ExitStack() as stack:
        for monitor in monitors:
            stack.enter_context(monitor)
        stack.push(lambda _, error, __: _end(monitors, error))
        yield


def _end(monitors: Sequence[Monitor], error: BaseException | None) -> None:
    for monitor in monitors:
        monitor.end(error)
