"""Detects a second thread in a client that only one may use at a time (``KafkaConsumer.acquire``)."""

from __future__ import annotations

import threading
from types import TracebackType

from mirror.errors import KafkaError


class SingleUser:
    """A reentrant context for one thread at a time. Raises KafkaError in a second one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._lock:
            if self._owner not in {None, me}:
                msg = f"this {self._what} is for one thread at a time: it is in use by thread {self._owner}"
                raise KafkaError(msg)
            self._owner = me
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._owner = None
