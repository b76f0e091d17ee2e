"""The checksum of a text is derived from those of its parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.wire.checksums import shifted
from tests.fakes.record_batches import crc32c


@given(st.binary(max_size=60), st.binary(max_size=3_000))
def test_checksum_of_a_text_is_that_of_its_parts_combined(before: bytes, after: bytes) -> None:
    assert shifted(crc32c(before), len(after)) ^ crc32c(after) == crc32c(before + after)


def test_lengths_up_to_a_gigabyte_are_combined() -> None:
    once = shifted(0x12345678, 2**29)
    assert shifted(once, 2**29) == shifted(0x12345678, 2**30)
