"""The matcher finds what a comparison of every place finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.batches.sequence_match import SequenceMatcher

_items = st.lists(st.sampled_from([b"a", b"b"]), max_size=12)


@given(_items.filter(len), _items)
def test_pattern_and_its_beginnings_are_found_where_they_end(pattern: list[bytes], stream: list[bytes]) -> None:
    matcher = SequenceMatcher(pattern)
    for count, item in enumerate(stream, start=1):
        lengths = [n for n in range(min(count, len(pattern)), 0, -1) if stream[count - n : count] == pattern[:n]]
        assert matcher.feed(item) == (len(pattern) in lengths)
        assert list(matcher.lengths()) == lengths
