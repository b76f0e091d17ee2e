"""Takeovers without a stored position whose target has no copy of what is in the source. Brokers in memory."""

from __future__ import annotations

import pytest

from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.takeover.continuation import TakeoverOutcome
from tests.takeover.fake_mirrormaker import FakeMirrorMaker, only

VALUES = [b"%d" % number for number in range(12)]


def _copied(mm2: FakeMirrorMaker) -> list[bytes]:
    result = mm2.pair.copy()
    assert result.outcome is CopyOutcome.COMPLETE, result.error
    return mm2.pair.values()


def test_without_a_position_records_of_others_are_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source may have deleted what MirrorMaker 2 had copied: the user has to say which of both it is."""
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.pair.source.log("t").delete_before(3)
    mm2.pair.log().append_values(b"of", b"others")
    decision = only(mm2.run())
    assert decision.outcome is TakeoverOutcome.UNSETTLED
    assert "stored no position, and none of the target's 2 records is a copy" in decision.reason
    assert "--unmatched-from-start" in decision.reason
    decision = only(mm2.run(unmatched_from_start=True))
    assert (decision.outcome, decision.next_offset, decision.notes) == (TakeoverOutcome.SETTLED, 3, ())
    assert _copied(mm2) == [b"of", b"others", *VALUES[3:]]


def test_copies_that_the_source_has_compacted_away_are_named_and_the_rest_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was killed before it stored a position. Later records of the same keys follow in the source."""
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.pair.target.topics["paris.t"].configs["cleanup.policy"] = "compact"
    mm2.pair.source.log("t").end_offset += 3
    mm2.write(*VALUES[3:])
    mm2.pair.log().append_values(*VALUES[:3])
    decision = only(mm2.run())
    assert (decision.outcome, mm2.pair.committed()) == (TakeoverOutcome.UNSETTLED, None)
    assert "by retention or compaction; if it is right" in decision.reason
    assert "use --unmatched-from-start, otherwise exclude" in decision.reason
    decision = only(mm2.run(unmatched_from_start=True))
    assert (decision.outcome, decision.next_offset) == (TakeoverOutcome.SETTLED, 3)
    assert _copied(mm2) == VALUES


def test_an_empty_source_is_begun_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.pair.source.log("t").delete_before(12)
    mm2.pair.log().append_values(b"of others")
    decision = only(mm2.run())
    assert (decision.outcome, decision.next_offset, decision.notes) == (TakeoverOutcome.SETTLED, 12, ())
