"""A steady load of ready-made batches, sent by a thread for each partition, and the result of every batch."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mirror.client import Producer, RecordMetadata, TopicPartition
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.stalls import now_ms

RECORD_BYTES: Final = 4_000
_SIZES: Final = (16 * 1024, 32 * 1024, 64 * 1024)
_PAYLOAD: Final = random.Random(5).randbytes(RECORD_BYTES)


def make_batch(tp: TopicPartition, number: int, size: int) -> Batch:
    """Return a batch of about ``size`` bytes whose records' keys are ``partition:number:record``."""
    builder = BatchBuilder("none", size)
    unix_ms = int(time.time() * 1000)
    while builder.append(f"{tp.partition}:{number}:{builder.count}".encode(), _PAYLOAD, (), unix_ms):
        pass
    return builder.build()


@dataclass(slots=True, eq=False)
class Sent:
    """A batch and its result. Times are monotonic ms.

    It was created between ``asked_ms`` (before the call) and ``taken_ms`` (after it; -1 where the call raised);
    ``completed_ms`` is -1 as long as there is no result. ``base_offset`` is -1 where the broker reported a duplicate.
    """

    number: int
    count: int
    asked_ms: float
    taken_ms: float = -1
    completed_ms: float = -1
    base_offset: int = -1
    error: BaseException | None = None

    @property
    def acknowledged(self) -> bool:
        return self.completed_ms >= 0 and self.error is None

    @property
    def latency_ms(self) -> float:
        return self.completed_ms - self.asked_ms

    def answer(self, future: Future[RecordMetadata]) -> None:
        """Record the result; called on the network thread."""
        self.completed_ms = now_ms()
        self.error = future.exception()
        if self.error is None:
            self.base_offset = future.result().base_offset


class Load:
    """``per_second`` batches of 16 to 64 KiB for each partition, through its topic's producer, until :meth:`stop`.

    A thread that had to wait for memory does not send the missed batches later.
    """

    def __init__(
        self, producers: Mapping[str, Producer], partitions: list[TopicPartition], *, per_second: float
    ) -> None:
        self.sent: Final[dict[TopicPartition, list[Sent]]] = {tp: [] for tp in partitions}
        self.began_ms: Final = now_ms()
        self._every_s: Final = 1 / per_second
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._send_all, args=(producers[tp.topic], tp, place / len(partitions)), daemon=True
            )
            for place, tp in enumerate(partitions)
        ]
        for thread in self._threads:
            thread.start()

    def _send_all(self, producer: Producer, tp: TopicPartition, phase: float) -> None:
        rng = random.Random(tp.partition)
        for number in ticks(self._stopping, self._every_s, phase):
            batch = make_batch(tp, number, rng.choice(_SIZES))
            sent = Sent(number, int(batch.count), now_ms())
            self.sent[tp].append(sent)
            try:
                future = producer.send_batch(tp, batch)
            except Exception as error:  # noqa: BLE001 - every error is verified afterwards
                sent.error, sent.completed_ms = error, now_ms()
            else:
                sent.taken_ms = now_ms()
                future.add_done_callback(sent.answer)

    def stop(self, within_s: float) -> list[str]:
        """Stop sending, wait ``within_s`` for all results, and describe the batches without one."""
        self._stopping.set()
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        while self._incomplete() and time.monotonic() < until:
            time.sleep(0.02)
        stuck = [
            f"a thread still waits in send_batch after {within_s} s" for thread in self._threads if thread.is_alive()
        ]
        return stuck + [f"{tp}: no answer for batch {number} after {within_s} s" for tp, number in self._incomplete()]

    def _incomplete(self) -> list[tuple[TopicPartition, int]]:
        return [(tp, sent.number) for tp, batches in self.sent.items() for sent in batches if sent.completed_ms < 0]


def ticks(stopping: threading.Event, every_s: float, phase: float) -> Iterator[int]:
    """Yield 0, 1, 2, ... every ``every_s`` seconds until ``stopping``; the first one after ``phase`` of that time."""
    due, number = time.monotonic() + phase * every_s, 0
    while not stopping.wait(max(0.0, due - time.monotonic())):
        yield number
        number += 1
        due = max(due + every_s, time.monotonic() - every_s)
