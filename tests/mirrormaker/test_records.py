"""The bytes of MirrorMaker 2's records, against bytes that its own classes wrote."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import InvalidArgument
from mirror.mirrormaker.records import Checkpoint, CheckpointKey, Heartbeat, OffsetSync


def test_a_heartbeat_has_the_bytes_of_mirrormaker() -> None:
    heartbeat = Heartbeat("west", "east", 1_767_225_600_000)
    assert heartbeat.key().hex() == "0004" + b"west".hex() + "0004" + b"east".hex()
    assert heartbeat.value().hex() == "0000" + "0000019b76daa800"


def test_lengths_of_strings_are_those_of_their_bytes() -> None:
    assert Heartbeat("é", "", 0).key() == b"\0\2\xc3\xa9\0\0"


def test_a_string_that_is_too_long_is_refused() -> None:
    assert len(Heartbeat("x" * 32_767, "", 0).key()) == 32_771
    with pytest.raises(InvalidArgument, match="at most 32767 bytes, not 32768"):
        Heartbeat("x" * 32_768, "", 0).key()


KEY = CheckpointKey("billing", TopicPartition("east.orders", 3))
KEY_BYTES = bytes.fromhex("0007 62696c6c696e67 000b 656173742e6f7264657273 00000003")


@pytest.mark.parametrize(
    ("checkpoint", "value"),
    [
        (Checkpoint(1_234_567, 1_234_000), "0000 000000000012d687 000000000012d450 0000"),
        (Checkpoint(1_234_567, 1_234_000, "méta"), "0000 000000000012d687 000000000012d450 0005 6dc3a97461"),
        (Checkpoint(137, 102), "0000 0000000000000089 0000000000000066 0000"),
    ],
)
def test_a_checkpoint_has_the_bytes_of_mirrormaker(checkpoint: Checkpoint, value: str) -> None:
    assert KEY.to_bytes() == KEY_BYTES
    assert checkpoint.to_bytes() == bytes.fromhex(value)
    assert CheckpointKey.parse(KEY.to_bytes()) == KEY
    assert Checkpoint.parse(checkpoint.to_bytes()) == checkpoint


def test_a_reader_takes_what_mirrormaker_s_takes() -> None:
    """Any version, more fields behind, and strings that are not UTF-8."""
    good = Checkpoint(5, 7, "x").to_bytes()
    assert Checkpoint.parse(b"\0\7" + good[2:] + b"more") == Checkpoint(5, 7, "x")
    assert Checkpoint.parse(good[:-1] + b"\xff") == Checkpoint(5, 7, "\ufffd")
    assert CheckpointKey.parse(KEY_BYTES + b"more") == KEY


def test_what_is_cut_off_or_has_a_null_is_no_checkpoint() -> None:
    value = Checkpoint(5, 7, "x").to_bytes()
    for length in range(len(value)):
        assert Checkpoint.parse(value[:length]) is None
    for length in range(len(KEY_BYTES)):
        assert CheckpointKey.parse(KEY_BYTES[:length]) is None
    assert Checkpoint.parse(None) is None
    assert CheckpointKey.parse(None) is None
    assert Checkpoint.parse(value[:18] + b"\xff\xff") is None, "a null string"
    assert CheckpointKey.parse(b"\xff\xff" + KEY_BYTES) is None


SYNC = OffsetSync(TopicPartition("orders", 3), 1_234_567, 1_234_000)


def test_an_offset_sync_has_the_bytes_of_mirrormaker() -> None:
    assert SYNC.key().hex() == "00066f7264657273" + "00000003"
    assert SYNC.value().hex() == "000000000012d687000000000012d450"
    assert OffsetSync.parse(SYNC.key(), SYNC.value()) == SYNC


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, SYNC.value()),
        (SYNC.key(), None),
        (SYNC.key()[:-1], SYNC.value()),
        (SYNC.key(), SYNC.value()[:-1]),
        (SYNC.key(), SYNC._replace(target=-1).value()),
    ],
)
def test_other_records_are_no_offset_syncs(key: bytes | None, value: bytes | None) -> None:
    assert OffsetSync.parse(key, value) is None
