"""A target that lost acknowledged records is completed, in order, whichever way it is copied. Brokers in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress import anchors
from mirror.relay.progress.anchors import key_of
from mirror.relay.progress.committed import read_progress
from mirror.relay.progress.progress_topic import ProgressTopic
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.examples import crossed
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build, values_of
from tests.relay.fake_pair import FLOW, FakePair

TARGET = TopicPartition("paris.t", 0)
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "sequences"},
    "at least once": {"exactly_once": False},
}


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.cluster, id="version 1"), pytest.param(2, id="version 2")])
def level(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


class Site:
    """A pair of clusters whose flow goes one way, and makes an anchor with each commit if it is to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, way: str, level: int) -> None:
        self.options = dict(WAYS[way])
        self.exact = self.options.pop("exactly_once", True)
        self.pair = FakePair(monkeypatch, exactly_once=self.exact)
        self.pair.target.upgrade("transaction.version", level)
        self.monkeypatch = monkeypatch
        self.written = 0

    def anchor_each_commit(self) -> None:
        self.monkeypatch.setattr(anchors, "INTERVAL_MS", 0)

    def copy(self, **policy: Any) -> RangeResult:
        return self.pair.copy(**self.options, **policy)

    def write_and_copy(self, count: int) -> RangeResult:
        self.write(count)
        result = self.copy()
        assert result.outcome is Outcome.COMPLETE, result.error
        return result

    def write(self, count: int) -> None:
        """Young records: old ones do not go by sequence."""
        log, values = self.pair.source.log("t"), self.values(self.written, self.written + count)
        log.append(build(values, base_offset=log.end_offset, timestamp=time.time_ns() // 1_000_000))
        self.written += count

    def values(self, first: int, end: int) -> list[bytes]:
        return [b"%d" % n for n in range(first, end)]

    def lose(self, end: int) -> None:
        """An unclean election: the log is cut back to ``end``."""
        log = self.pair.log()
        self.pair.target.elect_uncleanly("paris.t", 0, log.leader, end)

    def end_of(self, value: bytes) -> int:
        """The target offset behind the batch that ends with this value."""
        return next(
            one.next_offset
            for one in self.pair.log().batches()
            if not one.is_control and values_of(one.view)[-1] == value
        )


@pytest.fixture(params=WAYS)
def site(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, level: int) -> Site:
    return Site(monkeypatch, request.param, level)


def test_what_was_lost_is_sent_again_behind_what_stands(site: Site) -> None:
    site.anchor_each_commit()
    for count in (3, 2, 4):
        site.write_and_copy(count)
    site.lose(site.end_of(b"4"))
    result = site.write_and_copy(2)
    (loss,) = result.target_losses
    assert site.pair.values() == site.values(0, 11)
    assert (loss["kind"], loss["start"], loss["end"]) == ("truncated", 5, 9)
    assert (result.start, result.end, result.records) == (5, 11, 6)
    assert site.write_and_copy(1).target_losses == []
    assert site.pair.values() == site.values(0, 12)


def test_progress_is_that_of_the_healed_copy(site: Site) -> None:
    """It is behind the claim of the attempt whose records were lost, which lazy progress alone could not say."""
    site.write_and_copy(6)
    site.lose(0)
    site.write_and_copy(1)
    with Admin({"bootstrap.servers": site.pair.target.bootstrap}) as admin:
        found = read_progress(admin, FLOW, [TARGET])[TARGET]
    assert (found.offset, found.target.end if found.target else None) == (7, site.end_of(b"6"))


def test_everything_is_sent_again_if_the_whole_log_is_lost(site: Site) -> None:
    site.write_and_copy(3)
    site.lose(0)
    result = site.write_and_copy(1)
    assert site.pair.values() == site.values(0, 4)
    assert [(one["start"], one["end"]) for one in result.target_losses] == [(0, 3)]


def test_older_anchor_serves_if_newer_ones_are_lost(site: Site) -> None:
    """Behind the only one, at offset 0, the records that stand are compared with the source."""
    site.write_and_copy(3)
    for count in (2, 4):
        site.write_and_copy(count)
    site.lose(site.end_of(b"4"))
    result = site.write_and_copy(2)
    assert [(one["start"], one["end"]) for one in result.target_losses] == [(5 if site.exact else 0, 9)]
    again = [] if site.exact else site.values(0, 5)
    assert site.pair.values() == site.values(0, 5) + again + site.values(5, 11)


def test_loss_is_found_although_the_log_has_grown_again(site: Site) -> None:
    site.anchor_each_commit()
    site.write_and_copy(3)
    site.write_and_copy(2)
    site.lose(site.end_of(b"2"))
    site.pair.log().append_values(*[b"foreign"] * 9)
    site.write_and_copy(1)
    assert [value for value in site.pair.values() if value != b"foreign"] == site.values(0, 6)


def test_flow_that_is_to_fail_names_the_loss(site: Site) -> None:
    site.write_and_copy(3)
    site.lose(0)
    site.write(1)
    result = site.copy(on_target_loss="fail")
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith("target-truncated: ")
    assert (site.pair.values(), result.target_losses) == ([], [])


@pytest.mark.parametrize(
    ("site", "why"),
    crossed([*WAYS], ["no anchor of it", "are of other topics", "none of its anchors"]),
    indirect=["site"],
)
def test_loss_without_a_usable_anchor_is_named_with_the_reason(site: Site, why: str) -> None:
    site.anchor_each_commit()
    site.write_and_copy(3)
    topic = ProgressTopic({"bootstrap.servers": site.pair.target.bootstrap}, FLOW)
    kept = {key_of(TARGET, one): one for one in topic.read_anchors([TARGET], 5_000)[TARGET]}
    for key, anchor in kept.items():
        other = {
            "no anchor of it": None,
            "are of other topics": replace(anchor, topic_id="another"),
            "none of its anchors": anchor if anchor.target.end else None,
        }
        assert topic.write_anchors({key: other[why]}, 5_000) == {}
    site.lose(0)
    site.write(1)
    result = site.copy()
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith("target-truncated: target paris.t-0 lost records that it had acknowledged")
    assert why in str(result.error)
    assert "start-over = true" in str(result.error)
    assert site.copy(start_over=True).outcome is Outcome.COMPLETE
    assert site.pair.values() == site.values(0, 4)


def test_source_without_what_the_target_lost_is_a_gap(site: Site) -> None:
    site.anchor_each_commit()
    site.write_and_copy(3)
    site.write_and_copy(3)
    is_atomic = site.options.get("exactly_once_by") == "transactions"
    site.lose(site.end_of(b"2") + is_atomic)  # a transaction's marker is behind it
    site.pair.source.log("t").delete_before(6)
    site.write(1)
    for _ in range(2):
        result = site.copy()
        assert result.outcome is Outcome.FAILED
        assert "retention: copied up to offset 3, but the source begins at 6" in str(result.error)
    if site.options.get("exactly_once_by") != "sequences":
        result = site.copy(on_gap="skip")
        assert (result.outcome, result.gaps) == (Outcome.COMPLETE, {"retention": 3}), result.error
        assert site.pair.values() == [*site.values(0, 3), b"6"]


def test_records_of_a_transaction_whose_marker_is_lost_are_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    site = Site(monkeypatch, "transactions", level)
    site.anchor_each_commit()
    site.write_and_copy(3)
    site.write_and_copy(2)
    site.lose(site.end_of(b"4"))  # the marker is behind it
    log = site.pair.log()
    assert log.open_transactions
    log.append_values(b"foreign")
    site.write_and_copy(2)
    assert [value for value in site.pair.values() if value != b"foreign"] == site.values(0, 7)
    assert not log.open_transactions


def test_record_of_others_does_not_stand_for_the_marker_of_an_anchor(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Between the records and their marker another producer has written, and the marker is lost.

    The next attempt is killed while it fences. The abort of its transaction aborts the records, too.
    """
    site = Site(monkeypatch, "transactions", level)
    site.anchor_each_commit()
    site.write_and_copy(3)
    log, transactions = site.pair.log(), site.pair.target.transactions
    foreign: list[int] = []

    def rule(call: ServerCall) -> None:
        if call.api is Api.END_TXN and not foreign:
            foreign.append(log.append_values(b"foreign"))

    site.pair.target.control.add(rule)
    site.write_and_copy(2)
    site.write_and_copy(2)
    site.lose(foreign[0] + 1)
    name = transactional_id(FLOW, TARGET)
    begun = transactions.init(name, 60_000, -1, -1)
    assert transactions.add(name, begun.producer_id, begun.epoch, {TARGET}) == 0
    site.write_and_copy(1)
    assert [value for value in site.pair.values() if value != b"foreign"] == site.values(0, 8)


@pytest.mark.parametrize("fence", ["aborted", "committed"])
def test_marker_that_is_lost_alone_loses_no_record(monkeypatch: pytest.MonkeyPatch, level: int, fence: str) -> None:
    """The abort of the producer's next transaction aborts what no marker has ended, and its commit commits it."""
    site = Site(monkeypatch, "transactions", level)
    site.anchor_each_commit()
    site.write_and_copy(3)
    site.write_and_copy(2)
    site.lose(site.end_of(b"4"))
    if fence == "aborted":
        transactions, name = site.pair.target.transactions, transactional_id(FLOW, TARGET)
        begun = transactions.init(name, 60_000, -1, -1)
        assert transactions.add(name, begun.producer_id, begun.epoch, {TARGET}) == 0
    site.write_and_copy(1)
    assert site.pair.values() == site.values(0, 6)


def test_leader_that_moves_behind_the_last_marker_has_lost_nothing(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    site = Site(monkeypatch, "transactions", level)
    site.write_and_copy(3)
    site.lose(site.pair.log().end_offset)
    assert site.write_and_copy(1).target_losses == []
    assert site.pair.values() == site.values(0, 4)


def test_aborted_records_behind_the_anchor_are_no_part_of_the_copy(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    site = Site(monkeypatch, "transactions", level)
    site.write_and_copy(3)
    own = site.pair.log().batches()[-1]
    log = site.pair.log()
    log.append_values(b"3", b"4", attributes=TRANSACTIONAL, producer_id=own.producer_id, epoch=own.producer_epoch + 1)
    log.end_transaction(own.producer_id, commit=False, epoch=own.producer_epoch + 1)
    site.write_and_copy(4)
    site.lose(site.pair.log().index[-2][0])
    site.write_and_copy(1)
    assert site.pair.values() == site.values(0, 8)


def is_to_target(site: Site, call: ServerCall) -> bool:
    """Whether the Produce request has a batch of the copy."""
    topic_id = site.pair.target.topics["paris.t"].topic_id
    return any(topic_id == one.topic_id or one.name == "paris.t" for one in call.body.topic_data)


@pytest.mark.parametrize(("site", "at"), crossed([*WAYS], [2, 3, 5]), indirect=["site"])
def test_loss_while_the_partition_is_copied_is_mended_in_the_same_copy(site: Site, at: int) -> None:
    site.anchor_each_commit()
    site.write_and_copy(3)
    for _ in range(8):
        site.write(1)
    seen = 0

    def rule(call: ServerCall) -> None:
        nonlocal seen
        is_target = call.api is Api.PRODUCE and is_to_target(site, call)
        seen += is_target
        if is_target and seen == at:
            site.lose(site.end_of(b"1") if any(True for _ in site.pair.log().batches()) else 0)

    site.pair.target.control.add(rule)
    result = site.copy(commit_interval_ms=5, commit_min_interval_ms=1)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert (site.pair.values() == site.values(0, 11)) or not site.exact
    assert set(site.pair.values()) == set(site.values(0, 11))


@pytest.mark.parametrize("markers", [0, 1], ids=["its marker is lost", "its marker stands"])
def test_loss_while_a_commit_waits_for_a_batch_is_mended(
    monkeypatch: pytest.MonkeyPatch, level: int, markers: int
) -> None:
    """The producer ends the transaction with its last acknowledgement: that must not be one below the known end."""
    site = Site(monkeypatch, "transactions", level)
    site.anchor_each_commit()
    site.write_and_copy(3)
    site.write_and_copy(3)
    site.write(1)
    lost = False

    def rule(call: ServerCall) -> Action | None:
        nonlocal lost
        if lost or call.api is not Api.PRODUCE or not is_to_target(site, call):
            return None
        lost = True
        site.lose(site.end_of(b"2") + markers)
        return Action(stall_ms=100)  # the commit begins meanwhile

    site.pair.target.control.add(rule)
    result = site.copy(commit_interval_ms=5, commit_min_interval_ms=1)
    assert lost
    assert result.outcome is Outcome.COMPLETE, result.error
    assert site.pair.values() == site.values(0, 7)


# --- a copy that started over


def test_anchor_of_a_copy_before_it_started_over_is_not_used(site: Site) -> None:
    """The first copy began at source offset 4, so that nothing before that is in front of its anchors."""
    site.anchor_each_commit()
    site.write(4)
    (first,) = site.pair.copy_all([replace(site.pair.range_of(first=4), start=4)], **site.options)
    assert first.outcome is Outcome.COMPLETE, first.error
    for _ in range(8):
        site.write_and_copy(1)
    kept = site.end_of(b"11")
    site.write_and_copy(1)
    site.lose(kept)
    site.write(1)
    started_over = site.copy(on_target_loss="fail", start_over=True)
    assert (started_over.outcome, started_over.start) == (Outcome.COMPLETE, 0), started_over.error
    site.write_and_copy(2)
    site.lose(kept)
    site.write(1)
    result = site.copy()
    assert result.outcome is Outcome.FAILED
    assert "none of its anchors is in what is left of the log" in str(result.error)


# --- a topic that was made again


@pytest.mark.parametrize("offsets_too", [True, False])
def test_recreated_topic_is_copied_from_the_start_if_the_flow_says_so(site: Site, offsets_too: bool) -> None:
    site.write_and_copy(3)
    site.pair.made_again(offsets_too=offsets_too)
    site.write(1)
    failed = site.copy()
    assert str(failed.error).startswith("target-recreated: ")
    result = site.copy(on_target_recreated="start-over")
    assert (result.outcome, result.start, result.records) == (Outcome.COMPLETE, 0, 4), result.error
    assert site.pair.values() == site.values(0, 4)
    (loss,) = result.target_losses
    assert (loss["kind"], loss["target_end"], loss["start"], loss["end"]) == ("recreated", loss["target_end"], 0, 3)
    assert loss["target_end"] >= 3
    assert site.write_and_copy(1).target_losses == []
    assert site.pair.values() == site.values(0, 5)


def test_policy_for_a_recreated_topic_is_none_for_lost_records(site: Site) -> None:
    site.write_and_copy(3)
    site.lose(0)
    site.write(1)
    result = site.copy(on_target_loss="fail", on_target_recreated="start-over")
    assert str(result.error).startswith("target-truncated: ")


def test_one_read_of_the_progress_topic_serves_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, reads = FakePair(monkeypatch, partitions=3), 0
    for partition in range(3):
        pair.write(b"0", partition=partition)
    pair.copy_all()
    for partition in range(3):
        pair.target.elect_uncleanly("paris.t", partition, pair.log(partition).leader, 0)
        pair.write(b"1", partition=partition)
    read = ProgressTopic.read_anchors

    def counted(topic: ProgressTopic, *arguments: Any) -> dict[TopicPartition, list[anchors.Anchor]]:
        nonlocal reads
        reads += 1
        return read(topic, *arguments)

    monkeypatch.setattr(ProgressTopic, "read_anchors", counted)
    assert {result.outcome for result in pair.copy_all()} == {Outcome.COMPLETE}
    assert [pair.values(partition) for partition in range(3)] == [[b"0", b"1"]] * 3
    assert reads == 1
