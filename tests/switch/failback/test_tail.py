"""The tail of a partition: how its export continues, and which keys were written since."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import Record
from mirror.errors import FlowError
from mirror.switch.failback import tail
from mirror.switch.failback.tail import OFFSET, Span, TailCount, WrittenSince, marked, resumed, transactions, windows


def record(offset: int, value: bytes = b"v", key: bytes | None = None) -> Record:
    return Record(offset, 1000 + offset, key, value, (("own", b"1"),))


class TailTopic:
    """A partition of a tail's topic: its committed records, and offsets that markers and aborted records take."""

    def __init__(self) -> None:
        self.end = 0
        self.log: list[Record] = []

    def append(self, portion: Sequence[Record], *, committed: bool) -> None:
        for number, one in enumerate(portion):
            if committed:
                headers = marked(one, "old", 3)
                self.log.append(one._replace(offset=self.end + number, headers=headers))
        self.end += len(portion) + 1

    def last(self) -> Record | None:
        for low, high in windows(0, self.end, 2):
            if found := [one for one in self.log if low <= one.offset < high]:
                return found[-1]
        return None


@given(
    gaps=st.lists(st.integers(1, 4), max_size=12),
    kills=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=6),
)
def test_each_record_is_exported_once_wherever_attempts_are_killed(
    gaps: list[int], kills: list[tuple[int, bool, bool]]
) -> None:
    offsets = [5 + sum(gaps[:n]) for n in range(len(gaps))]  # others have taken the offsets in between
    source, span, topic = [record(one) for one in offsets], Span(5, 60), TailTopic()
    for after, has_sent, has_committed in [*kills, (100, True, True)]:
        left = resumed(span, topic.last(), "old", 3, "t.tail.2")
        todo = [one for one in source if left.start <= one.offset < left.end]
        portions = [todo[n : n + 2] for n in range(0, len(todo), 2)]
        for portion in portions[:after]:
            topic.append(portion, committed=True)
        if has_sent and after < len(portions):
            topic.append(portions[after], committed=has_committed)
    exported = [int(dict(one.headers)[OFFSET] or b"") for one in topic.log]
    assert exported == offsets


def test_an_exported_record_has_its_own_headers_and_says_where_it_was() -> None:
    assert marked(record(7), "old", 3) == (
        ("own", b"1"),
        ("mirror-tail-cluster", b"old"),
        ("mirror-tail-partition", b"3"),
        ("mirror-tail-offset", b"7"),
        ("mirror-tail-timestamp", b"1007"),
    )


@pytest.mark.parametrize(
    "last",
    [
        record(0),
        record(9)._replace(headers=marked(record(9), "other", 3)),
        record(9)._replace(headers=marked(record(9), "old", 2)),
        record(9)._replace(headers=marked(record(4), "old", 3)),
        record(9)._replace(headers=(*marked(record(9), "old", 3), (OFFSET, b"x"))),
    ],
)
def test_a_topic_that_others_have_written_to_is_refused(last: Record) -> None:
    with pytest.raises(FlowError, match="no record of this tail"):
        resumed(Span(5, 20), last, "old", 3, "t.tail.2")


def test_portions_are_bounded_in_records_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TRANSACTION_RECORDS", 2)
    monkeypatch.setattr(tail, "TRANSACTION_BYTES", 100)
    records = [record(0), record(1), record(2, b"v" * 200), record(3)]
    assert [[one.offset for one in portion] for portion in transactions(records)] == [[0, 1], [2], [3]]


def test_records_bytes_and_times_are_counted() -> None:
    count = TailCount(partition=0, start=5, end=9)
    for one in (record(6, b"four"), record(5, b"")):
        count.add(one)
    assert (count.records, count.bytes, count.first_ms, count.last_ms) == (2, 4 + 4 + 4, 1005, 1006)


def test_keys_that_were_written_again_are_counted_once() -> None:
    written = WrittenSince()
    for key in (b"a", b"b", b"b", None):
        written.add(key)
    for key in (b"b", b"b", b"c", None):
        written.see(key)
    assert (written.count, written.is_exact, written.has_keys) == (1, True, True)


def test_with_too_many_keys_the_count_is_an_estimate_in_bounded_memory() -> None:
    written = WrittenSince(most=500)
    for number in range(20_000):
        written.add(b"%d" % number)
    for number in range(0, 20_000, 2):
        written.see(b"%d" % number)
    assert not written.is_exact
    assert 7_000 < written.count < 13_000


def test_windows_reach_from_the_end_to_the_start() -> None:
    assert [*windows(3, 50, 4)] == [Span(46, 50), Span(6, 46), Span(3, 6)]
    assert [*windows(3, 3)] == []
