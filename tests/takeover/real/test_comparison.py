"""What a comparison of both clusters finds."""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from tests.copying.pair import Seen
from tests.takeover.real.comparison import compared


def _records(values: str) -> list[Seen]:
    return [Seen(None, value.encode(), (), TIMESTAMP_CREATE_TIME, 0) for value in values]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("abc", "abc", (0, 0, "", "", True)),
        ("abc", "ab", (0, 0, "c", "", True)),
        ("abc", "bc", (0, 0, "a", "", True)),
        ("abcd", "abacbd", (1, 1, "", "", True)),
        ("abcd", "abcdd", (0, 1, "", "", True)),
        ("abcdef", "abcdefff", (2, 0, "", "", True)),
        ("abcdef", "abcdefbf", (1, 1, "", "", True)),
        ("abcd", "abdc", (0, 0, "", "", False)),
        ("aab", "aab", (0, 0, "", "", True)),
        ("aab", "aaba", (0, 1, "", "", True)),
        ("ab", "xxab", (0, 0, "", "xx", True)),
    ],
)
def test_what_is_wrong_is_found(source: str, target: str, expected: tuple[int, int, str, str, bool]) -> None:
    """MirrorMaker 2 has written the first three records, and what is from offset 5 on, where it was handed back."""
    found = compared(_records(source), [*enumerate(_records(target))], [range(3), range(5, 9)])
    missing, foreign = (
        b"".join(one.value or b"" for one in sorted(records.elements())).decode()
        for records in (found.missing, found.foreign)
    )
    assert (found.doubled_by_mirrormaker, found.doubled, missing, foreign, found.in_order) == expected
