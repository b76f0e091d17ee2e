"""A steady load of ready-made batches, each caller a thread of its own, and what every caller was told."""

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


def made(tp: TopicPartition, number: int, size: int) -> Batch:
    """A batch of about ``size`` bytes whose records' keys are ``partition:number:record``."""
    builder = BatchBuilder("none", size)
    wall_ms = int(time.time() * 1000)
    while builder.append(f"{tp.partition}:{number}:{builder.count}".encode(), _PAYLOAD, (), wall_ms):
        pass
    return builder.build()


@dataclass(slots=True, eq=False)
class Sent:
    """One batch, and what its caller was told. Times are monotonic ms.

    It came into being between ``asked_ms`` (before the call) and ``taken_ms`` (after it; -1 where the call raised);
    ``told_ms`` is -1 as long as there is no answer. ``base_offset`` is -1 where the broker only said that it had it.
    """

    number: int
    count: int
    asked_ms: float
    taken_ms: float = -1
    told_ms: float = -1
    base_offset: int = -1
    error: BaseException | None = None

    @property
    def acknowledged(self) -> bool:
        return self.told_ms >= 0 and self.error is None

    @property
    def latency_ms(self) -> float:
        return self.told_ms - self.asked_ms

    def answer(self, future: Future[RecordMetadata]) -> None:
        """Note the outcome; runs on the network thread."""
        self.told_ms = now_ms()
        self.error = future.exception()
        if self.error is None:
            self.base_offset = future.result().base_offset


class Load:
    """``per_second`` batches of 16 to 64 KiB for each partition, through its topic's producer, until :meth:`stop`.

    A caller who had to wait for memory does not make up for what it missed.
    """

    def __init__(
        self, producers: Mapping[str, Producer], partitions: list[TopicPartition], *, per_second: float
    ) -> None:
        self.sent: Final[dict[TopicPartition, list[Sent]]] = {tp: [] for tp in partitions}
        self.began_ms: Final = now_ms()
        self._every_s: Final = 1 / per_second
        self._over = threading.Event()
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
        for number in ticks(self._over, self._every_s, phase):
            batch = made(tp, number, rng.choice(_SIZES))
            sent = Sent(number, int(batch.count), now_ms())
            self.sent[tp].append(sent)
            try:
                future = producer.send_batch(tp, batch)
            except Exception as error:  # noqa: BLE001 - whatever a caller is told is judged afterwards
                sent.error, sent.told_ms = error, now_ms()
            else:
                sent.taken_ms = now_ms()
                future.add_done_callback(sent.answer)

    def stop(self, within_s: float) -> list[str]:
        """No new batches; wait ``within_s`` for every caller's answer. Those who have none, in words."""
        self._over.set()
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        while self._untold() and time.monotonic() < until:
            time.sleep(0.02)
        stuck = [f"a caller still waits in send_batch after {within_s} s" for one in self._threads if one.is_alive()]
        return stuck + [f"{tp}: no answer for batch {number} after {within_s} s" for tp, number in self._untold()]

    def _untold(self) -> list[tuple[TopicPartition, int]]:
        return [(tp, one.number) for tp, all_sent in self.sent.items() for one in all_sent if one.told_ms < 0]


def ticks(over: threading.Event, every_s: float, phase: float) -> Iterator[int]:
    """0, 1, 2, ..., one each ``every_s`` seconds until ``over``, the first after ``phase`` of that."""
    due, number = time.monotonic() + phase * every_s, 0
    while not over.wait(max(0.0, due - time.monotonic())):
        yield number
        number += 1
        due = max(due + every_s, time.monotonic() - every_s)
