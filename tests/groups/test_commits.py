"""The offsets of large groups are committed in parts."""

from __future__ import annotations

import pytest

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.groups.commits import in_parts

LIMIT = 256 * 1024


def offsets(count: int, metadata: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition("paris.orders", number): OffsetAndMetadata(number, None, metadata) for number in range(count)
    }


@pytest.mark.parametrize("metadata", ["", "m" * 200, "\N{GREEK SMALL LETTER ALPHA}" * 2_000, "x" * 30_000])
def test_no_part_is_too_large_and_none_is_needlessly_small(metadata: str) -> None:
    wanted = offsets(5_000, metadata)
    parts = list(in_parts("billing", wanted))
    size = 100 + len("billing") + len("paris.orders") + len(metadata.encode())
    assert max(len(part) for part in parts) == LIMIT // size
    assert len(parts) == -(-len(wanted) // (LIMIT // size))
    together = {tp: offset for part in parts for tp, offset in part.items()}
    assert together == wanted
    assert sum(map(len, parts)) == len(wanted)


def test_a_group_that_is_not_large_is_committed_at_once() -> None:
    assert list(in_parts("billing", offsets(1_000))) == [offsets(1_000)]
    assert list(in_parts("billing", {})) == []
