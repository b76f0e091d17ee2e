"""Records that keep coming while a stream copies them."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.e2e.broker_side import WITHIN_S, Side, failed_into


class Feed:
    """``per_second`` records into all ``partitions`` of a topic in turn, numbered, while the block runs."""

    def __init__(self, side: Side, topic: str, partitions: int, per_second: float) -> None:
        self._side: Final = side
        self._topic: Final = topic
        self._partitions: Final = partitions
        self._per_second: Final = per_second
        self._over: Final = threading.Event()
        self._failures: Final = list[str]()
        self._thread: Final = threading.Thread(target=self._feed, name=f"feed-{topic}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> list[int]:
        """No more; where the source's partitions end now."""
        self._over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        assert not self._failures, self._failures[0]
        return self.ends()

    def ends(self) -> list[int]:
        """Where the source's partitions end now."""
        return [self._side.end(self._topic, partition) for partition in range(self._partitions)]

    def _feed(self) -> None:
        producer, note = self._side.producer(linger_ms=5), failed_into(self._failures)
        began, number = time.monotonic(), 0
        while not self._over.wait(max(0.0, began + number / self._per_second - time.monotonic())):
            producer.produce(
                self._topic, b"%d" % number, b"k%d" % (number % 7), number % self._partitions, on_delivery=note
            )
            producer.poll(0)
            number += 1
        if producer.flush(WITHIN_S):
            self._failures.append("records were not delivered")
