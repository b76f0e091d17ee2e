"""Copies from brokers of old releases, and what still shows that a source log is another one. Brokers in memory."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.relay.model.ranges import Outcome
from tests.fakes.cluster import FakeCluster
from tests.fakes.releases import RELEASES
from tests.relay.fake_pair import FakePair

WITHOUT_IDS = ("2.1", "2.4")


def _pair(monkeypatch: pytest.MonkeyPatch, release: str, *, exactly_once: bool = True) -> FakePair:
    return FakePair(monkeypatch, source_brokers=2, source_release=release, exactly_once=exactly_once)


def _copied(pair: FakePair, count: int, **policy: Any) -> None:
    first = pair.source.log("t").end_offset
    for number in range(first, first + count):
        pair.write(b"%d" % number)
    result = pair.copy(**policy)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert pair.values() == [b"%d" % number for number in range(first + count)]


def _error_after(pair: FakePair, value: bytes, count: int) -> str:
    """Write ``value`` to the source ``count`` times, copy, and return the error with which the copy has failed."""
    for _ in range(count):
        pair.write(value)
    result = pair.copy()
    assert result.outcome is Outcome.FAILED
    return result.error or ""


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly once", "at least once"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_comes_is_copied_run_after_run(
    monkeypatch: pytest.MonkeyPatch, release: str, *, exactly_once: bool
) -> None:
    pair = _pair(monkeypatch, release, exactly_once=exactly_once)
    _copied(pair, 3)
    pair.source.move("t", 0, 2)
    _copied(pair, 2)
    assert pair.committed() == 5


@pytest.mark.parametrize("release", RELEASES)
def test_a_source_that_was_cut_back_and_has_grown_again_stops_the_partition(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    pair = _pair(monkeypatch, release)
    _copied(pair, 5)
    pair.source.elect_uncleanly("t", 0, 2, 3)
    assert "truncated: copied up to offset 5, but the source's log was cut back to 3" in _error_after(pair, b"other", 4)
    assert len(pair.values()) == 5


@pytest.mark.parametrize("release", WITHOUT_IDS)
def test_without_ids_a_shorter_topic_that_was_made_again_stops_the_partition(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    pair = _pair(monkeypatch, release)
    _copied(pair, 5)
    pair.source.add_topic("t")
    error = _error_after(pair, b"new", 1)
    assert "truncated: copied up to offset 5" in error
    assert "(data loss there, or the topic was deleted and made again, which it has no id to show)" in error


@pytest.mark.parametrize("release", WITHOUT_IDS)
def test_without_ids_a_longer_topic_of_fewer_elections_stops_the_partition(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    pair = _pair(monkeypatch, release)
    _copied(pair, 3)
    pair.source.move("t", 0, 2)
    _copied(pair, 2)
    pair.source.add_topic("t")
    error = _error_after(pair, b"new", 9)
    assert (
        "recreated: copied up to offset 5 of a topic that was deleted and made again (it has no id to show it)" in error
    )
    assert "leader epoch 1 is not in its log any more" in error
    assert len(pair.values()) == 5
    result = pair.copy(on_gap="skip")
    assert (result.outcome, result.gaps) == (Outcome.COMPLETE, {"recreated": 0}), result.error
    assert pair.values()[5:] == [b"new"] * 9
    assert pair.copy().outcome is Outcome.COMPLETE
    assert len(pair.values()) == 14


def test_an_id_that_comes_with_an_upgrade_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = _pair(monkeypatch, "2.4")
    _copied(pair, 3)
    pair.source.versions = FakeCluster().versions
    _copied(pair, 2)
    pair.source.add_topic("t")
    assert "recreated: copied up to offset 5 of a topic that was deleted and made again" in _error_after(
        pair, b"new", 9
    )
