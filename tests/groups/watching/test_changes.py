"""Which groups records of the coordinators are about: every version of their keys, transactions, and what is broken."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest

from mirror.groups.watching.changes import Changes, parse_key
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.record_batches import batch, build, build_marker, record

COMMIT, ABORT = 1, 0
OFFSETS: Final = (0, 1)
OTHERS: Final = range(2, 24)


def key_of(group: str, version: int = 1, topic: str = "t", partition: int = 0) -> bytes:
    """As GroupMetadataManager.offsetCommitKey, or the beginning of another key, which names its group first."""
    name, about = group.encode(), topic.encode()
    found = struct.pack(">hh", version, len(name)) + name
    return found + struct.pack(">h", len(about)) + about + struct.pack(">i", partition) if version in OFFSETS else found


def batch_of(*keys: bytes | None, tombstones: bool = False, **fields: Any) -> Any:
    payload = b"".join(record(b"" if tombstones else b"value", at, key) for at, key in enumerate(keys))
    return batch(build([b""] * len(keys), payload=payload, **fields))


def in_transaction(producer_id: int, *keys: bytes) -> Any:
    return batch_of(*keys, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def marker(producer_id: int, kind: int = COMMIT) -> Any:
    return batch(build_marker(producer_id, 0, kind, base_offset=9))


@pytest.mark.parametrize("group", ["billing", "", "grüße", "x" * 300])
@pytest.mark.parametrize("version", OFFSETS)
def test_a_commit_names_its_group(version: int, group: str) -> None:
    assert parse_key(key_of(group, version)) == (True, group)


@pytest.mark.parametrize("version", OTHERS)
def test_members_and_assignments_are_no_commits(version: int) -> None:
    assert parse_key(key_of("billing", version)) == (True, None)


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\0\1\0",
        key_of("billing", 24),
        key_of("billing", -1),
        key_of("billing")[:8],
        b"\0\1\xff\xffabc",
        b"\0\1\0\2\xff\xfe",
    ],
)
def test_what_is_not_understood_may_be_about_any_group(key: bytes | None) -> None:
    assert parse_key(key) == (False, None)
    changes = Changes()
    changes.read(0, [batch_of(key_of("billing"), key)])
    assert changes.take() is None
    assert changes.take() == frozenset()


def test_each_change_is_named_once_and_deletions_are_changes() -> None:
    changes = Changes()
    changes.read(0, [batch_of(key_of("a"), key_of("b", 0), key_of("c", 2)), batch_of(key_of("a", topic="u"))])
    changes.read(1, [batch_of(key_of("d"), tombstones=True)])
    assert changes.take() == frozenset({"a", "b", "d"})
    assert changes.take() == frozenset()


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_a_group_in_a_transaction_has_changed_when_its_marker_comes(kind: int) -> None:
    changes = Changes()
    changes.read(0, [in_transaction(7, key_of("a")), in_transaction(8, key_of("b")), batch_of(key_of("c"))])
    assert changes.take() == frozenset({"c"})
    changes.read(1, [in_transaction(7, key_of("d"))])
    changes.read(0, [marker(7, kind)])
    assert changes.take() == frozenset({"a"})
    changes.read(1, [marker(7, kind)])
    assert changes.take() == frozenset({"d"})


def test_of_a_transaction_whose_begin_was_not_read_any_group_may_have_changed() -> None:
    changes = Changes()
    changes.read(0, [in_transaction(7, key_of("a"))])
    changes.lose()
    assert changes.take() is None
    changes.read(0, [marker(7)])
    assert changes.take() is None


def test_groups_in_open_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.groups.watching.changes._MOST_OPEN", 3)
    changes = Changes()
    changes.read(0, [in_transaction(7, key_of("a"), key_of("b")), in_transaction(8, key_of("c"))])
    assert changes.take() == frozenset()
    changes.read(0, [in_transaction(9, key_of("d"))])
    assert changes.take() is None


def test_a_batch_that_cannot_be_decoded_may_be_about_any_group() -> None:
    changes = Changes()
    broken = build([b"x"])
    broken[-1] ^= 0xFF
    changes.read(0, [batch(broken), batch_of(key_of("a"))])
    assert changes.take() is None
