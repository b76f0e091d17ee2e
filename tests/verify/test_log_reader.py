"""Logs are read many partitions at once, and each from its start to its end. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import TopicPartition
from mirror.errors import OffsetOutOfRange
from mirror.runtime.clock import SystemClock
from mirror.verify import log_reader
from mirror.verify.log_reader import LogPart, LogReader
from mirror.wire.api import Api
from tests.relay.fake_pair import FakePair

_PARTITIONS = 60
_RECORDS = 5


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    pair = FakePair(monkeypatch, partitions=_PARTITIONS)
    for partition in range(_PARTITIONS):
        for number in range(_RECORDS):
            pair.write(b"%d" % number, partition=partition)
    return pair


@pytest.fixture
def reader(pair: FakePair) -> Iterator[LogReader]:
    with LogReader({"bootstrap.servers": pair.source.bootstrap}, SystemClock(), 5_000) as made:
        yield made


def part(partition: int, start: int = 1, end: int = _RECORDS) -> LogPart:
    return LogPart(TopicPartition("t", partition), start, end)


def values(reader: LogReader, of: LogPart) -> list[bytes | None]:
    found = [one for fetched in reader.read(*of) for one in fetched.records()]
    return [one.value for one in found if of.start <= one.offset < of.end]


EXPECTED = [b"%d" % number for number in range(1, _RECORDS)]


def test_short_parts_are_fetched_together(pair: FakePair, reader: LogReader) -> None:
    parts = [part(number) for number in range(_PARTITIONS)]
    reader.expect(parts)
    assert [values(reader, one) for one in parts] == [EXPECTED] * _PARTITIONS
    assert len(pair.source.calls(Api.FETCH)) < _PARTITIONS / 4


@pytest.mark.parametrize("room", [1, 300])
def test_what_has_no_room_ahead_is_read_when_it_is_needed(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(log_reader, "_AHEAD_BYTES", room)
    parts = [part(number) for number in range(6)]
    reader.expect(parts)
    for one in parts:
        assert values(reader, one) == EXPECTED
        assert sum(map(len, reader._ahead.values())) <= 1, "one batch more than there is room for"


def test_parts_may_be_left_out_broken_off_and_read_again(reader: LogReader) -> None:
    reader.expect([part(0), part(1), part(1, 3), part(2), part(3, 0, 0)])
    assert values(reader, part(1)) == EXPECTED, "part 0 was left out"
    assert values(reader, part(1, 3)) == EXPECTED[2:], "another part of the same partition"
    broken_off = reader.read(*part(2))
    next(broken_off)
    broken_off.close()
    assert values(reader, part(2)) == EXPECTED
    assert values(reader, part(9)) == EXPECTED, "it was not expected"
    assert values(reader, part(0)) == EXPECTED
    assert values(reader, part(3, 0, 0)) == []


def test_a_part_that_grows_is_read_to_its_end(pair: FakePair, reader: LogReader) -> None:
    reader.expect([part(0), part(1)])
    assert values(reader, part(0)) == EXPECTED
    pair.write(b"late", partition=1)
    assert values(reader, part(1, end=_RECORDS + 1)) == [*EXPECTED, b"late"]


def test_what_is_wrong_with_one_part_concerns_no_other(reader: LogReader) -> None:
    parts = [part(0), part(1, 50, 60), part(2)]
    reader.expect(parts)
    assert values(reader, parts[0]) == EXPECTED
    with pytest.raises(OffsetOutOfRange):
        values(reader, parts[1])
    assert values(reader, parts[2]) == EXPECTED
