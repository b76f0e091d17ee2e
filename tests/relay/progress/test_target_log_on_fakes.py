"""A target that is no longer the log that was copied into is always detected, without false alarms."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.flow_topic import topic_of
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.examples import crossed
from tests.fakes.control import ServerCall
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture(params=[pytest.param("version 1", marks=pytest.mark.cluster), "version 2", "at least once"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakePair:
    made = FakePair(monkeypatch, exactly_once=request.param != "at least once")
    if request.param == "version 2":
        made.target.upgrade("transaction.version", 2)
    return made


def _copied(pair: FakePair) -> None:
    pair.write(b"0", b"1", b"2", b"3", b"4")
    result = pair.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 5), result.error


def _fails(pair: FakePair, name: str, *words: str) -> None:
    before, kept = pair.values(), pair.committed()
    pair.write(b"5", b"6")
    result = pair.copy(on_target_loss="fail")
    assert result.outcome is Outcome.FAILED, "nothing is skipped in silence"
    target = "paris.t-0" if name == "target-truncated" else "topic paris.t"
    assert str(result.error).startswith(f"{name}: target {target} "), result.error
    advice = "start-over = true" if name == "target-truncated" else 'on-target-recreated = "start-over"'
    assert all(word in str(result.error) for word in (advice, *words)), result.error
    assert (result.records, pair.values(), pair.committed()) == (0, before, kept)
    again = pair.copy(start_over=True, on_target_loss="fail")
    assert (again.outcome, again.start, again.records) == (Outcome.COMPLETE, 0, 7), again.error
    assert pair.values() == before + [b"%d" % n for n in range(7)]
    _goes_on(pair, 7)


def _goes_on(pair: FakePair, at: int) -> None:
    pair.write(b"%d" % at)
    result = pair.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 1), result.error
    assert pair.values()[-1] == b"%d" % at


def test_progress_identifies_the_target_log(pair: FakePair) -> None:
    _copied(pair)
    result = json.loads(pair.metadata())["target"]
    log = pair.log()
    last = [one for one in log.batches() if not one.is_control][-1]
    assert result == {
        "topic_id": str(pair.target.topics["paris.t"].topic_id),
        "end": last.next_offset,
        "leader_epoch": log.leader_epoch,
        "producer_id": last.producer_id,
        **({"since": 0} if pair.exactly_once else {"batch": [last.producer_epoch, last.base_sequence]}),
    }
    _goes_on(pair, 5)


def test_recreated_target_is_detected_if_its_offsets_are_kept(pair: FakePair) -> None:
    _copied(pair)
    pair.made_again(offsets_too=False)
    _fails(pair, "target-recreated", "topic id")


def test_recreated_target_without_offsets_is_detected_by_its_progress_record(pair: FakePair) -> None:
    _copied(pair)
    pair.made_again()
    _fails(pair, "target-recreated", "topic id")


def test_recreated_topic_is_named_never_resumed(pair: FakePair) -> None:
    _copied(pair)
    pair.made_again(offsets_too=False)
    pair.log().append_values(*[b"foreign"] * 20)
    _fails(pair, "target-recreated")


def test_empty_recreated_target_without_a_progress_record_starts(pair: FakePair) -> None:
    _copied(pair)
    pair.made_again()
    pair.target.add_topic(topic_of(FLOW))
    result = pair.copy()
    assert (result.outcome, result.start, result.records) == (Outcome.COMPLETE, 0, 5)


def _shrunk(pair: FakePair) -> None:
    pair.log().truncate(0)


def _regrown(pair: FakePair) -> None:
    log = pair.log()
    log.truncate(0)
    log.move(log.leader)
    log.append_values(*[b"foreign"] * 20)


def _regrown_by_an_aborted_attempt(pair: FakePair) -> None:
    """An attempt of the same producer wrote there after the loss, and was aborted."""
    log = pair.log()
    own = json.loads(pair.metadata())["target"]["producer_id"]
    epoch = log.batches()[-1].producer_epoch
    log.truncate(0)
    log.move(log.leader)
    log.append_values(*[b"void"] * 20, attributes=TRANSACTIONAL, producer_id=own, epoch=epoch)
    log.end_transaction(own, commit=False, epoch=epoch)


def _cut_back_below_an_open_transaction(pair: FakePair) -> None:
    """The attempt continues at a lower offset than it started at, and is aborted."""
    log = pair.log()
    own = json.loads(pair.metadata())["target"]["producer_id"]
    epoch = log.batches()[-1].producer_epoch
    log.append_values(b"void", attributes=TRANSACTIONAL, producer_id=own, epoch=epoch)
    log.truncate(0)
    log.move(log.leader)
    for _ in range(5):
        log.append_values(b"void", attributes=TRANSACTIONAL, producer_id=own, epoch=epoch)
    log.end_transaction(own, commit=False, epoch=epoch)
    log.append_values(b"foreign")


@pytest.mark.parametrize(
    "loses", [_shrunk, _regrown, _regrown_by_an_aborted_attempt, _cut_back_below_an_open_transaction]
)
def test_target_that_lost_acknowledged_records_is_detected(pair: FakePair, loses: Callable[[FakePair], None]) -> None:
    _copied(pair)
    loses(pair)
    _fails(pair, "target-truncated", "5 offsets are missing")


# --- no false alarm


def _retention(pair: FakePair) -> None:
    log = pair.log()
    log.move(log.leader)
    log.append_values(b"foreign", b"foreign")
    log.delete_before(log.end_offset)


def _led_again(pair: FakePair) -> None:
    pair.log().move(1)


def _foreign_behind(pair: FakePair) -> None:
    pair.log().move(1)
    pair.log().append_values(b"foreign")
    pair.aborted_write(b"void")


def _elected_again_before_the_append(pair: FakePair) -> None:
    """The client did not know the leader epoch that its last append belongs to."""
    result = json.loads(pair.metadata())
    log = pair.log()
    log.leader_epoch += 3
    for one in log.batches():
        one.view[12:16] = (log.leader_epoch).to_bytes(4, "big")
    pair.set_metadata(json.dumps(result))


def _compacted_in_a_later_epoch(pair: FakePair) -> None:
    """The append and everything before it were deleted, and later appends are of a later epoch."""
    log = pair.log()
    log.move(1)
    log.append_values(b"later")
    last = log.index[-1]
    del log.data[: last[2]]
    log.index[:] = [(last[0], last[1], 0)]


@pytest.mark.parametrize(
    "changes",
    [
        _retention,
        _led_again,
        _foreign_behind,
        _elected_again_before_the_append,
        _compacted_in_a_later_epoch,
    ],
)
def test_target_that_lost_nothing_is_not_reported(pair: FakePair, changes: Callable[[FakePair], None]) -> None:
    _copied(pair)
    changes(pair)
    _goes_on(pair, 5)
    assert json.loads(pair.metadata())["target"]["end"] > 5
    _goes_on(pair, 6)


def test_flow_that_copied_nothing_accepts_another_topic(pair: FakePair) -> None:
    pair.write(b"0")
    (result,) = pair.copy_all([replace(pair.range_of(), start=1, end=1, first=1)])
    assert (result.outcome, pair.committed()) == (Outcome.COMPLETE, 1)
    assert json.loads(pair.metadata())["target"]["end"] == 0
    pair.made_again(offsets_too=False)
    _goes_on(pair, 1)


# --- while it is copied into


def _made_again(pair: FakePair) -> None:
    pair.made_again()


def _made_again_with_its_offsets_kept(pair: FakePair) -> None:
    pair.made_again(offsets_too=False)


def _cut_back(pair: FakePair) -> None:
    pair.log().truncate(0)
    pair.log().move(1)


@pytest.mark.parametrize(
    ("happens", "at"), crossed([_made_again, _made_again_with_its_offsets_kept, _cut_back], [2, 5, 9])
)
def test_loss_of_the_target_during_a_copy_is_detected(
    pair: FakePair, happens: Callable[[FakePair], None], at: int
) -> None:
    name = "target-truncated" if happens is _cut_back else "target-recreated"
    _copied(pair)
    for n in range(5, 45):
        pair.write(b"%d" % n + bytes(10_000))  # large enough to be sent one by one
    seen = 0

    def rule(call: ServerCall) -> None:
        nonlocal seen
        if call.api is Api.PRODUCE:
            seen += 1
            if seen == at:
                happens(pair)

    pair.target.control.add(rule)
    for _ in range(2):  # and the next run says so again
        result = pair.copy(commit_interval_ms=5, commit_min_interval_ms=1, on_target_loss="fail")
        assert result.outcome is Outcome.FAILED, result
        assert str(result.error).startswith((f"{name}: ", "progress-lost: ")[: 1 + (happens is _made_again)]), result
    assert seen >= at
