"""The bytes of MirrorMaker 2's records, against bytes that its own classes wrote."""

from __future__ import annotations

import pytest

from mirror.errors import InvalidArgument
from mirror.mirrormaker.records import Heartbeat


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
