"""The checksum of a batch's records is derived from that of the batch, without reading them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.wire.checksums import shifted
from mirror.wire.records import HEADER_BYTES, Batch
from tests.fakes.record_batches import batch, build, crc32c


@given(st.binary(max_size=60), st.binary(max_size=3_000))
def test_checksum_of_a_text_is_that_of_its_parts_combined(before: bytes, after: bytes) -> None:
    assert shifted(crc32c(before), len(after)) ^ crc32c(after) == crc32c(before + after)


def test_lengths_up_to_a_gigabyte_are_combined() -> None:
    once = shifted(0x12345678, 2**29)
    assert shifted(once, 2**29) == shifted(0x12345678, 2**30)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.integers(-1, 2**40), st.integers(0, 2**15 - 1))
def test_checksum_of_the_records_does_not_depend_on_the_header(
    values: list[bytes], producer_id: int, epoch: int
) -> None:
    plain = batch(build(values))
    before = plain.records_crc()
    assert before == crc32c(bytes(plain.view[HEADER_BYTES:]))
    plain.patch(producer_id, epoch, 7, transactional=True)
    assert Batch(plain.view).records_crc() == before
