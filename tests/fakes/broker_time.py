"""The time that brokers in memory take in this process: they stand for other computers, and are not measured."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from tests.fakes.connection import ServerConnection


class BrokerTime:
    """Seconds by the clock, and of CPU, since the last :meth:`restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def counted(self, plain: Any) -> Any:
        """``plain``, whose time counts."""

        def call(*args: Any) -> Any:
            began, began_cpu = time.monotonic(), time.process_time()
            try:
                return plain(*args)
            finally:
                self.seconds += time.monotonic() - began
                self.cpu_seconds += time.process_time() - began_cpu

        return call


@contextlib.contextmanager
def broker_time(methods: Collection[str] = ("_handle",)) -> Iterator[BrokerTime]:
    """Count the time in ``methods`` of the brokers' connections during the block.

    By default that of handling requests; ``receive`` and ``step`` also decode and encode them.
    """
    found = BrokerTime()
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in methods:
            monkeypatch.setattr(ServerConnection, name, found.counted(getattr(ServerConnection, name)))
        yield found
