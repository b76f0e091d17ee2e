"""A copy between clusters in memory, and its verification: the plan from the progress, and the comparison of a task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirror.config.load import load
from mirror.config.positions import Position
from mirror.exit_status import FAILED
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.runtime.memory.buffer_recycling import recycled
from mirror.spark.clusters import open_sides
from mirror.spark.verification.planning import VerifyPlan, VerifyRequest, make_plan
from mirror.spark.verification.verify_task import VerifyTask, prepare_process, verify_task
from mirror.verify.partition_results import PartitionResult, exit_status
from mirror.verify.proof import Link, Proof, ProofError, proved_ranges
from mirror.verify.values import Kind, Named, Uncompared
from mirror.wire.api import Api
from mirror.wire.frames import FrameReader
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import build
from tests.relay.batches.logs_by_hand import Made, batch_at
from tests.relay.fake_pair import FLOW, FakePair
from tests.verify.damages import DAMAGES, source_records
from tests.verify.logs import Found, by_tens, found_in, numbered

_SOME = DAMAGES[::5]
"""All are tested without clusters; here it is that they go the whole way."""
_TIMES = '"default.api.timeout.ms" = 30000\n"request.timeout.ms" = 2000'


class Audit:
    """The verification of a :class:`FakePair`'s flow."""

    def __init__(self, pair: FakePair, folder: Path) -> None:
        self.pair = pair
        self.config = folder / "mirror.toml"
        self.configure()

    def configure(self, *lines: str) -> None:
        text = [
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n{_TIMES}',
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n{_TIMES}',
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]',
            *lines,
        ]
        self.config.write_text("\n".join(text) + "\n", encoding="utf-8")

    def plan(self, **request: Any) -> VerifyPlan:
        config = load(self.config)
        (flow,) = config.select(FLOW)
        with open_sides(config, flow) as sides:
            return make_plan(VerifyRequest(flow=flow, **request), sides)

    def verify(self, *, allow_foreign: bool = False, **request: Any) -> list[PartitionResult]:
        plan = self.plan(has_others=allow_foreign, **request)
        tasks = [
            VerifyTask(
                config=self.config,
                secrets_dir=None,
                flow=FLOW,
                ranges=ranges,
                foreign_allowed=allow_foreign,
                hashes=True,
            )
            for ranges in plan.tasks(2)
        ]
        compared = [result for task in tasks for result in verify_task(task)]
        return sorted([*plan.results, *compared], key=lambda result: result.partition)

    def link(self, results: list[PartitionResult], *, flow: str = FLOW) -> Link:
        return Link(
            time="",
            version="",
            flow=flow,
            source_cluster_id="paris",
            target_cluster_id="berlin",
            settings={},
            ranges=proved_ranges(results),
        )


@pytest.fixture
def audit_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Audit]:
    return lambda **options: Audit(FakePair(monkeypatch, **options), tmp_path)


def _values(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


@pytest.mark.parametrize(
    "policy",
    [{"exactly_once_by": Way.TRANSACTIONS}, {"exactly_once_by": Way.SEQUENCES}, {"exactly_once": False}],
    ids=["transactions", "sequences", "at least once"],
)
def test_copy_of_any_way_is_equal(audit_of: Callable[..., Audit], policy: dict[str, Any]) -> None:
    audit = audit_of(exactly_once=policy.get("exactly_once", True), partitions=3)
    young_ms = int(time.time() * 1000)  # only such records go by sequence
    for partition in range(2):
        audit.pair.source.log("t", partition).append(build(_values(0, 50), timestamp=young_ms))
    copies = audit.pair.copy_all(**{key: value for key, value in policy.items() if key != "exactly_once"})
    assert {copy.outcome for copy in copies} == {Outcome.COMPLETE}, copies
    if policy.get("exactly_once") is False:
        audit.configure('delivery = "at-least-once"')
    results = audit.verify()
    assert [(one.outcome, one.verdict and one.verdict.records, one.error) for one in results] == [
        ("equal", 50, ""),
        ("equal", 50, ""),
        ("equal", 0, ""),
    ]


def test_flow_that_never_ran_is_not_compared(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 5))
    del audit.pair.target.topics["paris.t"]
    results = audit.verify()
    assert [one.outcome for one in results] == ["not compared"]
    assert exit_status(results) == FAILED
    assert not proved_ranges(results)
    # For a topic that is not there the admin repeats this request until its deadline, of 60 s.
    assert not audit.pair.target.calls(Api.DESCRIBE_CONFIGS)


def test_a_partition_that_the_target_lacks_is_not_compared(audit_of: Callable[..., Audit]) -> None:
    """mirror/design/decisions/050-partition-counts.md"""
    audit = audit_of(partitions=2)
    audit.pair.target.add_topic("paris.t", 1)
    for partition in (0, 1):
        audit.pair.write(*_values(0, 5), partition=partition)
    audit.pair.copy()
    results = audit.verify()
    assert [one.outcome for one in results] == ["equal", "not compared"]
    assert exit_status(results) == FAILED


def test_topic_whose_copy_would_have_too_long_a_name_keeps_no_other_from_being_compared(
    audit_of: Callable[..., Audit],
) -> None:
    audit = audit_of()
    audit.configure("topics-exclude = []")
    text = audit.config.read_text(encoding="utf-8")
    audit.config.write_text(text.replace('topics = ["t"]', 'topics = ["t+"]'), encoding="utf-8")
    audit.pair.source.add_topic("t" * 249)
    audit.pair.write(*_values(0, 5))
    audit.pair.copy_all()
    long, compared = sorted(audit.verify(), key=lambda one: one.outcome == "equal")
    assert (compared.topic, compared.outcome) == ("t", "equal")
    assert (long.topic, long.partition) == ("t" * 249, 0)
    assert "its target topic's name would have 255 characters" in long.error


def test_target_whose_records_were_all_deleted_is_not_compared(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 500))
    audit.pair.copy()
    audit.pair.log().delete_before(audit.pair.log().end_offset)
    (result,) = results = audit.verify()
    assert result.outcome == "not compared"
    assert result.verdict is not None
    behind = "the target's log begins behind them"
    assert result.verdict.uncompared == [Uncompared("source", 0, 500, behind)]
    assert exit_status(results) == FAILED
    assert not proved_ranges(results)
    audit.pair.write(*_values(500, 502))
    audit.pair.copy()
    (result,) = results = audit.verify()
    assert (result.outcome, exit_status(results)) == ("equal", 0)
    assert result.verdict is not None
    assert (result.verdict.records, result.verdict.uncompared) == (2, [Uncompared("source", 0, 500, behind)])


def test_records_without_progress_cannot_be_judged(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 5))
    audit.pair.log().append_values(b"0")
    (result,) = audit.verify()
    assert result.outcome == "unknown"
    assert "no progress" in result.error
    assert [one.outcome for one in audit.verify(allow_foreign=True)] == ["not compared"]


def test_records_that_others_write_to_a_copy_are_found(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    end = audit.pair.log().end_offset
    audit.pair.log().append_values(b"of others")
    (result,) = audit.verify()
    assert result.verdict is not None
    assert [(one.kind, one.source_offset, one.target_offset) for one in result.verdict.differences] == [
        (Kind.FOREIGN, 50, end)
    ]
    assert [one.outcome for one in audit.verify(allow_foreign=True)] == ["equal"]


def test_deletion_that_never_arrived_is_found_behind_the_proof_of_its_value(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    for cluster, topic in ((audit.pair.source, "t"), (audit.pair.target, "paris.t")):
        cluster.topics[topic].configs["cleanup.policy"] = "compact"
    first, deletion, last = Made(b"a", b"v", (), 5), Made(b"a", None, (), 6), Made(b"b", b"1", (), 7)
    _append(audit.pair.source.log("t", 0), [first])
    audit.pair.copy()
    proof = Proof().extended(audit.link(audit.verify(proof=Proof())))
    for record in (deletion, last):
        _append(audit.pair.source.log("t", 0), [record])
    end = audit.pair.log().end_offset
    audit.pair.copy()
    audit.pair.log().truncate(end)
    audit.pair.log().append(build((b"x",), producer_id=99, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    audit.pair.log().end_transaction(99, commit=False)
    _append(audit.pair.log(), [last])
    (result,) = audit.verify(proof=proof)
    assert result.verdict is not None
    assert found_in(result.verdict.differences) == [Found(Kind.MISSING, 1, end + 2)]


def test_records_in_a_partition_that_only_the_target_has_are_found(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.target.add_topic("paris.t", 3)
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    log = audit.pair.target.log("paris.t", 1)
    log.append_values(b"of others", b"of others")
    copied, foreign, empty = audit.verify()
    assert [(one.outcome, one.incomplete) for one in (copied, empty)] == [("equal", [])] * 2
    assert foreign.verdict is not None
    assert found_in(foreign.verdict.differences) == [Found(Kind.FOREIGN, 0, 0, 2)]
    assert foreign.notes == empty.notes == ["only the target has this partition"]
    permitted = audit.verify(allow_foreign=True)
    assert [one.outcome for one in permitted] == ["equal"] * 3
    proof = Proof().extended(audit.link(permitted))
    assert [one.partition for one in proof.ranges()] == [0]


def test_partition_that_the_target_does_not_have_is_not_complete(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    audit.pair.source.grow(audit.pair.source.topics["t"], 3)
    audit.pair.source.log("t", 1).append_values(b"new", b"new")
    copied, missing, empty = results = audit.verify()
    assert [one.outcome for one in results] == ["equal", "not compared", "equal"]
    assert missing.incomplete == ["source 0 to 1 not compared: nothing is copied yet"]
    assert (copied.incomplete, empty.incomplete) == ([], [])
    assert (exit_status(results), exit_status(results, strict=True)) == (FAILED, 3)


def test_copy_is_complete_once_it_has_every_record_of_the_source(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    (result,) = audit.verify()
    assert (result.outcome, result.incomplete) == ("equal", [])
    audit.pair.write(*_values(50, 53))
    (result,) = results = audit.verify()
    assert result.outcome == "equal"
    assert result.incomplete == ["source 50 to 52 not compared: they are not copied yet"]
    assert (exit_status(results), exit_status(results, strict=True)) == (0, 3)
    audit.pair.copy()
    (result,) = audit.verify()
    assert result.incomplete == []
    audit.pair.log().delete_before(10)
    (result,) = audit.verify()
    assert (result.outcome, len(result.incomplete)) == ("equal", 1)


def test_damage_to_a_copy_is_found(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of(partitions=len(_SOME))
    records = source_records()
    for partition in range(len(_SOME)):
        _append(audit.pair.source.log("t", partition), records)
    assert {copy.outcome for copy in audit.pair.copy_all()} == {Outcome.COMPLETE}
    assert {result.outcome for result in audit.verify()} == {"equal"}
    expected = {}
    for partition, damage in enumerate(_SOME):
        target = list(records)
        expected[damage.name] = sorted(damage.change(target))
        audit.pair.log(partition).truncate(0)
        _append(audit.pair.log(partition), target)
    found = {
        damage.name: sorted(found_in(result.verdict.differences)) if result.verdict is not None else result.error
        for damage, result in zip(_SOME, audit.verify(), strict=True)
    }
    assert found == expected


def _append(log: PartitionLog, records: Sequence[Made]) -> None:
    for batch in by_tens(records):
        log.append(bytearray(batch_at(0, batch, codec="lz4").view))


def test_comparison_begins_at_a_time_or_an_offset(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    records = [numbered(number) for number in range(200)]
    _append(audit.pair.source.log("t", 0), records)
    audit.pair.copy()
    audit.pair.log().truncate(0)
    _append(audit.pair.log(), [*records[:20], *records[21:]])
    (whole,) = audit.verify()
    assert whole.verdict is not None
    assert found_in(whole.verdict.differences) == [Found(Kind.MISSING, 20, 20)]
    for position in (Position(timestamp_ms=records[50].time_ms), Position(offset=50)):
        (behind,) = audit.verify(position=position)
        assert behind.verdict is not None
        assert (behind.outcome, behind.verdict.source_start, behind.verdict.records) == ("equal", 50, 150)
        assert [(one.side, one.start, one.end) for one in behind.verdict.uncompared] == [("target", 0, 49)]
    for beyond in (Position(offset=207), Position(timestamp_ms=records[-1].time_ms + 1)):
        (nothing,) = audit.verify(position=beyond)
        assert nothing.verdict is not None
        assert (nothing.outcome, nothing.verdict.records) == ("equal", 0)


def test_what_either_side_has_deleted_is_not_compared(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of(partitions=2)
    for partition in range(2):
        _append(audit.pair.source.log("t", partition), [numbered(number) for number in range(200)])
    audit.pair.copy_all()
    audit.pair.source.log("t", 0).delete_before(50)
    audit.pair.log(1).delete_before(70)
    found = []
    for result in audit.verify():
        assert result.verdict is not None
        found.append(
            (result.outcome, result.verdict.records, [(one.side, one.end) for one in result.verdict.uncompared])
        )
    assert found == [("equal", 150, [("target", 50)]), ("equal", 130, [("source", 70)])]


def test_records_behind_an_open_transaction_of_the_target_are_not_compared(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    records = [numbered(number) for number in range(200)]
    _append(audit.pair.source.log("t", 0), records)
    audit.pair.copy()
    log = audit.pair.log()
    log.truncate(0)
    _append(log, records[:100])
    log.append(build((b"open",), producer_id=99, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    _append(log, records[100:])
    (withheld,) = audit.verify()
    assert withheld.verdict is not None
    assert (withheld.outcome, withheld.verdict.source_end, withheld.verdict.equal) == ("unknown", 100, True)
    assert "an open transaction on the target" in withheld.verdict.uncompared[0].reason
    log.end_transaction(99, commit=False)
    (result,) = audit.verify()
    assert result.verdict is not None
    assert (result.outcome, result.verdict.records, result.verdict.named[Named.ABORTED]) == ("equal", 200, 1)


def test_repetitions_are_named_at_least_once_and_differences_exactly_once(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of(exactly_once=False)
    _append(audit.pair.source.log("t", 0), [numbered(number) for number in range(50)])
    audit.pair.copy()
    _append(audit.pair.log(), [numbered(number) for number in range(40, 50)])
    audit.configure('delivery = "at-least-once"')
    (repeated,) = audit.verify()
    assert repeated.verdict is not None
    assert (repeated.outcome, repeated.verdict.named[Named.REPEATED]) == ("equal", 10)
    audit.configure()
    assert [one.outcome for one in audit.verify()] == ["different"]


def test_log_that_ends_or_begins_elsewhere_is_an_error_of_its_partition(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    _append(audit.pair.source.log("t", 0), [numbered(number) for number in range(50)])
    audit.pair.copy()
    plan = audit.plan()
    audit.pair.source.log("t", 0).delete_before(30)  # since it was planned
    task = VerifyTask(config=audit.config, secrets_dir=None, flow=FLOW, ranges=plan.ranges)
    (result,) = verify_task(task)
    assert result.outcome == "unknown"
    assert "OFFSET_OUT_OF_RANGE" in result.error
    assert result.verdict is not None
    assert [(one.side, one.start, one.end) for one in result.verdict.uncompared] == [("source", 0, 50)]


def test_target_topic_that_is_gone_lacks_all_of_it(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    del audit.pair.target.topics["paris.t"]
    (result,) = audit.verify()
    assert result.verdict is not None
    assert found_in(result.verdict.differences) == [Found(Kind.MISSING, 0, 0, 50)]
    assert result.notes == ["the target topic does not exist"]


def test_target_that_was_made_again_lacks_all_of_it(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    audit.pair.made_again(offsets_too=False)
    (result,) = audit.verify()
    assert result.verdict is not None
    assert [(one.kind, one.source_offset, one.count) for one in result.verdict.differences] == [(Kind.MISSING, 0, 50)]
    assert "made again" in result.notes[0]


def test_next_verification_begins_behind_the_proof(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of(partitions=2)
    for partition in range(2):
        audit.pair.write(*_values(0, 50), partition=partition)
    audit.pair.copy_all()
    proof = Proof().extended(audit.link(audit.verify(proof=Proof())))
    assert audit.plan(proof=proof).ranges == []
    audit.pair.write(*_values(50, 60))
    audit.pair.copy_all()
    first, second = audit.verify(proof=proof)
    assert first.verdict is not None
    assert (first.outcome, first.verdict.source_start, first.verdict.records) == ("equal", 50, 10)
    assert second.outcome == "equal"
    whole = proof.extended(audit.link([first, second]))
    checked = audit.verify(proof=whole, checks=True)
    assert [(one.partition, one.outcome, one.verdict and one.verdict.records) for one in checked] == [
        (0, "equal", 50),
        (0, "equal", 10),
        (1, "equal", 50),
    ]
    other = Proof().extended(audit.link([], flow="other"))
    with pytest.raises(ProofError, match="a file of its own"):
        audit.plan(proof=other)


def test_source_that_has_other_records_than_were_proved_is_found(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy()
    proof = Proof().extended(audit.link(audit.verify(proof=Proof())))
    proved = proof.links[0].ranges[0]
    assert proved.records == 50
    forged = Proof().extended(
        Link(
            time="",
            version="",
            flow=FLOW,
            source_cluster_id="paris",
            target_cluster_id="berlin",
            settings={},
            ranges=(type(proved)(**{**_fields(proved), "sha256": "00"}),),
        )
    )
    (result,) = audit.verify(proof=forged, checks=True)
    assert result.outcome == "unknown"
    assert "not as it was when it was proved" in result.error


def _fields(proved: object) -> dict[str, Any]:
    return {name: getattr(proved, name) for name in proved.__dataclass_fields__}  # type: ignore[attr-defined] # one


def test_transform_and_headers_of_the_flow_are_expected(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 50))
    audit.pair.copy(transform="tests.spark.verification.shout:shout", headers=(("by", b"mirror"),))
    assert [one.outcome for one in audit.verify()] == ["different"]
    audit.configure('transform = "tests.spark.verification.shout:shout"', f'[flows.{FLOW}.headers]\nby = "mirror"')
    assert [(one.outcome, one.error) for one in audit.verify()] == [("equal", "")]


def test_task_whose_transform_cannot_be_loaded_says_so(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of()
    audit.pair.write(*_values(0, 5))
    audit.pair.copy()
    audit.configure('transform = "tests.spark.verification.shout:missing"')
    (result,) = audit.verify()
    assert result.outcome == "unknown"
    assert "cannot be loaded" in result.error


def test_workers_reuse_the_memory_of_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrameReader, "large", (8 * 1024 * 1024, bytearray))
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        prepare_process()
        assert (FrameReader.large[1], sys.getswitchinterval()) == (recycled, 0.0005)
    finally:
        sys.setswitchinterval(interval_s)
