"""Gaps: their kind, the offset to resume at, and the loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.progress.gaps import GapKind, find_gap
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TOPIC_ID


@pytest.mark.parametrize(
    ("at", "diverging", "kind", "resume", "lost"),
    [
        (10, None, GapKind.RETENTION, 20, 10),
        (90, None, GapKind.TRUNCATED, 80, 10),
        (60, 50, GapKind.TRUNCATED, 50, 10),
        (60, 10, GapKind.TRUNCATED, 20, 40),
        (60, 60, None, 0, 0),
        (20, None, None, 0, 0),
        (80, None, None, 0, 0),
    ],
)
def test_gap_has_its_kind_resume_offset_and_loss(
    at: int, diverging: int | None, kind: GapKind | None, resume: int, lost: int
) -> None:
    gap = find_gap(progress_at(at), TOPIC_ID, 20, 80, diverging=diverging)
    assert (None if gap is None else gap.kind) == kind
    if gap is not None:
        assert (gap.resume, gap.lost) == (resume, lost)
        assert f"resume at offset {resume}" in gap.advice()


def test_other_topic_id_is_recreated_whatever_the_offsets() -> None:
    gap = find_gap(progress_at(50), "another", 20, 80)
    assert gap is not None
    assert (gap.kind, gap.resume, gap.lost) == (GapKind.RECREATED, 20, 0)
    assert TOPIC_ID in str(gap)
    assert find_gap(progress_at(50, topic_id=""), "another", 20, 80) is None
    assert find_gap(progress_at(50), "", 20, 80) is None


@given(st.integers(0, 99), st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 99))
def test_resume_offset_is_inside_the_log(at: int, earliest: int, more: int, diverging: int | None) -> None:
    gap = find_gap(progress_at(at), TOPIC_ID, earliest, earliest + more, diverging=diverging)
    if gap is not None:
        assert earliest <= gap.resume <= earliest + more
        assert gap.lost >= 0
