"""The counters that the cores keep about their own work."""

from __future__ import annotations

import threading

from mirror.meters import BOUNDS_MS, Histogram, NetworkSnapshot, RequestMeter, RequestMeters


def test_bucket_includes_its_upper_bound() -> None:
    one = Histogram()
    for ms in (0, 1, 2, 3, 14_400_000, 14_400_001):
        one.add(ms)
    assert one.counts[:3] == [2, 1, 1]
    assert one.counts[-2:] == [1, 1]
    assert (one.count, one.sum_ms, len(one.counts)) == (6, 28_800_007, len(BOUNDS_MS) + 1)


def test_snapshots_subtract_to_the_counts_between_them() -> None:
    meters = RequestMeters()
    meters["EndTxn"].took.add(5)
    before = NetworkSnapshot(meters.snapshot(), 100)
    meters["EndTxn"].took.add(70)
    meters["EndTxn"].lost += 1
    meters["Produce"].throttled_ms += 9
    since = NetworkSnapshot(meters.snapshot(), 130).since(before)
    assert since.busy_ms == 30
    assert (since.requests["EndTxn"].took.count, since.requests["EndTxn"].took.sum_ms) == (1, 70)
    assert since.requests["EndTxn"].lost == 1
    assert since.requests["Produce"] == RequestMeter(throttled_ms=9)
    assert before.requests["EndTxn"].took.count == 1, "a look does not change"


def test_snapshot_while_meters_are_added() -> None:
    meters, over, looked = RequestMeters(), threading.Event(), threading.Event()

    def write() -> None:
        for number in range(20_000):
            meters[f"A_{number % 500}"].took.add(1)
            if number == 100:
                looked.wait(30)  # else it may be over before anybody has looked
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not over.is_set():
        assert len(meters.snapshot()) <= 500
        looked.set()
    writer.join()
    assert sum(one.took.count for one in meters.snapshot().values()) == 20_000
