"""Open transactions: what is known from one observation to the next, and how they are described."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.relay.progress.open_transactions import OpenTransaction, describe_oldest, update_open_transactions

TP = TopicPartition("orders", 0)
T0 = 1_800_000_000_000
MINUTE = 60_000


def found(**values: object) -> OpenTransaction:
    one = OpenTransaction(topic="orders", partition=0, offset=34, records=12, seen_ms=T0, since_ms=T0)
    return replace(one, **values)  # type: ignore[arg-type]


def test_transaction_ages_while_the_stable_offset_does_not_move() -> None:
    one = update_open_transactions({}, {TP: (34, 40), TopicPartition("t", 0): (5, 5)}, T0)
    assert one == {TP: found(records=6)}
    two = update_open_transactions({TP: replace(one[TP], producer_id=7)}, {TP: (34, 46)}, T0 + MINUTE)
    assert two == {TP: found(seen_ms=T0 + MINUTE, producer_id=7)}
    assert two[TP].age_ms == MINUTE


@pytest.mark.parametrize("offset", [35, 33])
def test_moved_stable_offset_is_another_transaction(offset: int) -> None:
    """Or the log was truncated: nothing that was known remains valid."""
    before = {TP: found(producer_id=7, start_ms=5)}
    assert update_open_transactions(before, {TP: (offset, 46)}, T0 + 1) == {
        TP: found(offset=offset, records=46 - offset, seen_ms=T0 + 1, since_ms=T0 + 1)
    }
    assert update_open_transactions(before, {TP: (46, 46)}, T0 + 1) == {}


@pytest.mark.parametrize(
    ("values", "noted", "warned"),
    [
        ({}, False, False),
        ({"since_ms": T0 - 10_000}, True, False),
        ({"since_ms": T0 - MINUTE}, True, True),
        ({"start_ms": T0 - 9_999}, False, False),
        ({"start_ms": T0 - MINUTE}, True, True),
        # A producer that copies old records is not one that hangs, where its coordinator says so.
        ({"start_ms": T0 - 1, "last_record_ms": 0}, False, False),
        ({"last_record_ms": T0 - 10_000}, True, False),
        ({"last_record_ms": 0}, True, False),
        ({"start_ms": T0 + 5_000}, False, False),
    ],
)
def test_transaction_is_noteworthy_and_stuck_by_age(values: dict[str, object], noted: bool, warned: bool) -> None:
    one = found(**values)
    assert (one.is_noteworthy, one.is_stuck()) == (noted, warned)


def test_long_epoch_delays_the_warning() -> None:
    assert not found(since_ms=T0 - 2 * MINUTE).is_stuck(3 * MINUTE)
    assert found(since_ms=T0 - 3 * MINUTE).is_stuck(3 * MINUTE)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"start_ms": T0 - 12 * MINUTE, "producer_id": 7, "producer_epoch": 3, "transactional_id": "app"},
            "a transaction (transactional id 'app', producer id 7, epoch 3) that has been open for 12 min;",
        ),
        ({"since_ms": T0 - MINUTE}, "a transaction that has been open for at least 60 s;"),
        (
            {"last_record_ms": T0 - 3 * 3_600_000, "producer_id": 7},
            "a transaction (producer id 7) that is open, and wrote its last record 3 h ago;",
        ),
    ],
)
def test_description_names_records_producer_age_and_command(values: dict[str, object], words: str) -> None:
    line = found(**values).describe()
    assert line.startswith("orders-0: 12 records from offset 34 on are not copied: they are behind ")
    assert words in line
    assert line.endswith("abort --topic orders --partition 0 --start-offset 34")
    assert "\n" not in line


def test_only_the_oldest_transactions_are_described() -> None:
    many = {
        TopicPartition("orders", number): found(partition=number, since_ms=T0 - number * MINUTE) for number in range(9)
    }
    named = describe_oldest(many)
    assert [line.partition(":")[0] for line in named[:3]] == ["orders-8", "orders-7", "orders-6"]
    assert named[3:] == ["6 more partitions have records behind an open transaction"]
    assert len(describe_oldest({TP: found()})) == 1


def test_transaction_survives_the_ledger() -> None:
    one = found(start_ms=5, producer_id=7)
    assert OpenTransaction(**one.to_json()) == one
