"""The encoder's thread: partitions take turns, cancelled jobs end, and every future completes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator, Iterator

import pytest

from mirror.relay.batches.encoder import Encoder
from mirror.relay.batches.encoding_schedule import EncodingSchedule
from mirror.relay.batches.reencode import ReencodeResult, ReencodeSpec, Steps, reencode, reencode_steps
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import CODEC_MASK
from tests.polling import eventually
from tests.relay.copy_harness import made

_WITHIN_S = 30


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Clock:
    """A clock that advances with each reading: every step takes a whole turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def encoder(clock: Clock) -> Iterator[Encoder]:
    encoder = Encoder(1_000, clock)
    yield encoder
    encoder.close()


def steps(count: int, name: str, log: list[str], go: threading.Event | None = None) -> Steps:
    """A job that records each step, and waits for ``go`` before the first one."""
    if go is not None:
        assert go.wait(_WITHIN_S)
    for _ in range(count):
        log.append(name)
        yield 0
    return ReencodeResult(dropped={name: count})


def test_partitions_take_turns(encoder: Encoder) -> None:
    log, go = list[str](), threading.Event()
    long = encoder.submit("hostile", functools.partial(steps, 50, "long", log, go))
    short = encoder.submit("healthy", functools.partial(steps, 2, "short", log))
    go.set()
    assert short.result(_WITHIN_S).dropped == {"short": 2}
    assert long.result(_WITHIN_S).dropped == {"long": 50}
    assert log[:5] == ["long", "short", "long", "short", "long"]


def test_cancelled_job_ends_at_its_next_step(encoder: Encoder) -> None:
    log, stepped, closed = list[str](), threading.Semaphore(0), threading.Event()

    def endless() -> Generator[int, None, ReencodeResult]:
        try:
            while True:
                log.append("step")
                stepped.release()
                yield 0
        finally:
            closed.set()

    one = encoder.submit("p", endless)
    assert stepped.acquire(timeout=_WITHIN_S)
    behind = encoder.submit("p", functools.partial(steps, 1, "behind", log))
    assert one.cancel()
    assert closed.wait(_WITHIN_S)
    assert behind.result(_WITHIN_S).dropped == {"behind": 1}


def test_failing_job_does_not_affect_other_jobs(encoder: Encoder) -> None:
    def breaks() -> Generator[int, None, ReencodeResult]:
        yield 0
        raise KeyError("x")

    broken = encoder.submit("p", breaks)
    fine = encoder.submit("p", functools.partial(steps, 1, "fine", []))
    assert isinstance(broken.exception(_WITHIN_S), KeyError)
    assert fine.result(_WITHIN_S).dropped == {"fine": 1}


def test_dying_thread_fails_all_pending_jobs(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(EncodingSchedule, "on_ended", broken)
    go = threading.Event()
    futures = [encoder.submit(key, functools.partial(steps, 5, "x", [], go)) for key in ("a", "b")]
    go.set()
    assert [str(one.exception(_WITHIN_S)) for one in futures] == ["a fault", "a fault"]
    assert encoder.submit("c", functools.partial(steps, 1, "x", [])).cancelled()


def test_close_cancels_all_pending_jobs() -> None:
    encoder, go = Encoder(1_000), threading.Event()
    futures = [encoder.submit(key, functools.partial(steps, 1, "x", [], go)) for key in ("a", "a", "b")]
    encoder.close()
    go.set()
    futures.append(encoder.submit("c", functools.partial(steps, 1, "x", [])))
    assert all(one.cancelled() for one in futures)
    thread = encoder._thread
    assert thread is not None
    eventually(lambda: not thread.is_alive(), what="its thread has ended")


def test_interrupted_job_has_the_same_result(encoder: Encoder) -> None:
    source = [made(0, 3_000), made(5_000, 10)]
    recipe = ReencodeSpec(limit=2_000, codec="lz4")
    futures = [encoder.submit(key, functools.partial(reencode_steps, source, recipe)) for key in range(3)]
    expected = reencode(source, recipe)
    for future in futures:
        result = future.result(_WITHIN_S)
        assert [(bytes(one.batch.view), one.base_offset, one.next_offset) for one in result.batches] == [
            (bytes(one.batch.view), one.base_offset, one.next_offset) for one in expected.batches
        ]


def test_long_job_can_be_interrupted_often() -> None:
    """A source of many records takes several steps, and so do many batches that are encoded from it."""
    source = made(0, 20_000)
    assert len(list(reencode_steps([source], ReencodeSpec()))) >= 20_000 // 1_024
    assert len(list(reencode_steps([source], ReencodeSpec(limit=5_000)))) >= 40
    held = list(reencode_steps([source], ReencodeSpec()))
    assert held[0] >= source.size, "what was decompressed"
    assert held[-1] > held[0], "and what was made"


def test_small_sources_share_a_step() -> None:
    """The encoder checks its turn after each step: one for each of them would cost more than to copy their records."""
    sources = [made(number * 2, 2) for number in range(1_100)]
    assert len(list(reencode_steps(sources, ReencodeSpec()))) == 3, "two of 1,024 records, and the rest"


def test_each_decompression_is_a_step() -> None:
    """A compressed source of a few records may hold megabytes: what is decompressed is reported before the next one."""
    sources = []
    for number in range(3):
        builder = BatchBuilder("lz4", 10_000)
        builder.append(None, bytes(5_000), (), 1_700_000_000_000)
        sources.append(builder.build())
        assert sources[number].attributes & CODEC_MASK
    held = list(reencode_steps(sources, ReencodeSpec()))
    assert len(held) == 4, "three sources, and the end"
    assert min(held) > 5_000
