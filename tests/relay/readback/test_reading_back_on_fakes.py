"""A copy that verifies itself while it copies, between brokers in memory whose target is damaged meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.readback.reader import TargetReadBack, consumer_options
from mirror.relay.readback.written import WrittenBatch
from mirror.relay.task import copy_ranges, reading_back
from mirror.wire.api import Api
from mirror.wire.records import Batch
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import build, stamped, values_of
from tests.relay.fake_pair import FakePair

TARGET = TopicPartition("paris.t", 0)
BATCHES = 8
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "sequences"},
    "at least once": {},
}


@pytest.fixture(params=WAYS)
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakePair:
    """With a source of batches that are passed on as they are: large ones, and young ones."""
    found = FakePair(monkeypatch, exactly_once=request.param != "at least once")
    found.way = WAYS[request.param]  # type: ignore[attr-defined]
    for n in range(BATCHES):
        write(found, n)
    return found


def value(n: int) -> bytes:
    return b"%04d" % n * 3_000


def write(pair: FakePair, n: int) -> None:
    log = pair.source.log("t")
    log.append(build([value(n)], base_offset=log.end_offset, timestamp=time.time_ns() // 1_000_000))


def copy(pair: FakePair, verify: str = "all", **policy: Any) -> RangeResult:
    return pair.copy(verify=verify, **pair.way, **policy)  # type: ignore[attr-defined]


def data_of(log: PartitionLog) -> list[Batch]:
    return [one for one in log.batches() if not one.is_control]


def rewrite(log: PartitionLog, batches: Sequence[Batch]) -> None:
    """The log now has exactly these batches; its end stays."""
    log.data.clear()
    log.index.clear()
    for one in batches:
        log.index.append((one.base_offset, one.next_offset, len(log.data)))
        log.data += one.view


def with_value(one: Batch, new: bytes) -> Batch:
    """Another client has written this in its place: the same producer, the same count."""
    made = build(
        [new],
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        base_sequence=one.base_sequence,
        attributes=one.attributes,
        timestamp=one.base_timestamp,
    )
    return Batch(memoryview(stamped(made, one.base_offset, one.leader_epoch)))


def change_value(log: PartitionLog, hit: int) -> None:
    rewrite(log, [with_value(one, b"X" + value(5)[1:]) if one.base_offset == hit else one for one in log.batches()])


def change_a_bit(log: PartitionLog, hit: int) -> None:
    position = next(position for base, _, position in log.index if base == hit)
    log.data[position + 100] ^= 1


def lose(log: PartitionLog, hit: int) -> None:
    rewrite(log, [one for one in log.batches() if one.base_offset != hit])


def on_commit_of(monkeypatch: pytest.MonkeyPatch, pair: FakePair, batch: int, act: Callable[[], None]) -> None:
    """Call ``act`` behind the commit of this batch, before anything is read back.

    The broker calls it, so that nothing changes the log meanwhile. Until then its leader refuses the reader.
    """
    add, committed, done = TargetReadBack.add, list[bool](), list[bool]()

    def added(
        self: TargetReadBack, tp: TopicPartition, written: Sequence[WrittenBatch], *args: Any, **named: Any
    ) -> None:
        add(self, tp, written, *args, **named)
        committed.extend(True for one in written if one.source_start == batch)

    def rule(call: ServerCall) -> Action | None:
        if call.api is not Api.FETCH or call.body.isolation_level != 1 or done:
            return None
        if not committed:
            return Action(errors={TARGET: errors.NOT_LEADER})
        done.append(True)
        act()
        return None

    monkeypatch.setattr(TargetReadBack, "add", added)
    pair.target.control.add(rule)


def test_undamaged_copy_is_verified_completely(pair: FakePair) -> None:
    result = copy(pair)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["records"]) == (BATCHES, BATCHES)
    assert (result.read_back["bytes"], result.read_back["verified_to"]) == (result.bytes, BATCHES)
    assert (result.read_back["differences"], result.read_back["unverified"]) == ({}, {})
    assert copy(pair).read_back is None, "nothing new was copied"


def test_nothing_is_read_back_unless_it_is_asked_for(pair: FakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = list[str]()

    def options(of_cluster: Mapping[str, object], mode: str) -> dict[str, object]:
        readers.append(mode)
        return consumer_options(of_cluster, mode)

    monkeypatch.setattr(copy_ranges, "consumer_options", options)
    result = copy(pair, "off")
    assert (result.outcome, result.read_back, readers) == (Outcome.COMPLETE, None, [])
    copy(pair, "sample")
    assert readers == ["sample"]


def test_of_a_sample_each_hundredth_batch_is_read_back(pair: FakePair) -> None:
    for n in range(BATCHES, 201):
        write(pair, n)
    result = copy(pair, "sample")
    assert result.batches == 201
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["verified_to"]) == (3, 201)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(change_value, "content"), (change_a_bit, "content"), (lose, "missing")],
    ids=["a value", "a bit", "a batch"],
)
def test_damage_to_the_target_is_reported_with_its_offsets_and_the_copy_goes_on(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch, damage: Callable[[PartitionLog, int], None], kind: str
) -> None:
    hit = list[int]()

    def act() -> None:
        hit.append(data_of(pair.log())[5].base_offset)
        damage(pair.log(), hit[0])

    on_commit_of(monkeypatch, pair, 5, act)
    result = copy(pair)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    (found,) = result.read_back["found"]
    assert (found["kind"], found["start"], found["end"], found["target_offset"]) == (kind, 5, 6, hit[0])
    assert (result.read_back["batches"], result.read_back["differences"]) == (BATCHES - 1, {kind: 1})
    assert result.timeline is not None
    (event,) = [one for one in result.timeline.events if one["name"] == "mirror.difference"]
    assert (event["kind"], event["target_offset"]) == (kind, hit[0])


def test_truncated_tail_is_reported(pair: FakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = list[int]()

    def act() -> None:
        ends.append(data_of(pair.log())[6].base_offset)
        pair.target.elect_uncleanly("paris.t", 0, pair.log().leader, ends[0])

    on_commit_of(monkeypatch, pair, 7, act)
    # In a transaction, the commit marker is lost as well: what is left of it is withheld from readers.
    monkeypatch.setattr(reading_back, "_GRACE_MS", 1_500)
    result = copy(pair)
    assert result.read_back is not None
    found = {(one["kind"], one["start"], one["target_offset"]) for one in result.read_back["found"]}
    assert {("missing", 6, ends[0]), ("missing", 7, ends[0] + 1)} <= found, result.read_back


def test_batch_that_is_doubled_while_it_is_copied_is_reported(pair: FakePair) -> None:
    produced = list[int]()

    def rule(call: ServerCall) -> Action | None:
        if call.api is Api.PRODUCE:
            produced.append(1)
            if len(produced) == 4 and (batches := data_of(pair.log())):
                first = batches[0]
                pair.log().append(build(values_of(first.view), timestamp=first.base_timestamp))
        return None

    pair.target.control.add(rule)
    result = copy(pair)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    assert result.read_back["batches"] == BATCHES
    if pair.exactly_once:
        (found,) = result.read_back["found"]
        assert (found["kind"], found["start"], found["end"]) == ("doubled", 0, 1)
        assert values_of(
            next(one for one in pair.log().batches() if one.base_offset == found["target_offset"]).view
        ) == [value(0)]
    else:
        assert result.read_back["differences"] == {}, "at least once, a repetition is legitimate"


@pytest.mark.parametrize("configs", [{"message.timestamp.type": "LogAppendTime"}, {"cleanup.policy": "compact"}])
def test_harmless_differences_raise_no_alarm(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch, configs: dict[str, str]
) -> None:
    pair.target.topics["paris.t"].configs.update(configs)
    if "cleanup.policy" in configs:
        on_commit_of(monkeypatch, pair, 5, lambda: lose(pair.log(), data_of(pair.log())[5].base_offset))
    result = copy(pair) if pair.way != WAYS["sequences"] else pair.copy(verify="all", exactly_once_by="auto")  # type: ignore[attr-defined]
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    assert (result.read_back["differences"], result.read_back["found"]) == ({}, [])
    left_out = {"compacted": 1} if "cleanup.policy" in configs else {}
    assert result.read_back["unverified"] == left_out


def test_target_that_may_not_be_read_is_said_and_delays_nothing(pair: FakePair) -> None:
    refused: dict[TopicPartition | str, int] = {TARGET: errors.TOPIC_AUTHORIZATION_FAILED}

    def rule(call: ServerCall) -> Action | None:
        # A search for the exact position reads at level 0.
        return Action(errors=refused) if call.api is Api.FETCH and call.body.isolation_level == 1 else None

    pair.target.control.add(rule)
    result = copy(pair)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["unverified"]) == (0, {"not readable": BATCHES})
