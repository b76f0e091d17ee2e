"""Verification of flows in both directions: each side has records of its own, and those that a flow has written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.exit_status import DONE
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.way import Way
from mirror.spark.clusters import open_sides
from mirror.spark.verification.planning import VerifyRequest, make_plan
from mirror.spark.verification.verify_task import VerifyTask, verify_task
from mirror.verify.partition_results import PartitionResult, exit_status
from mirror.verify.values import Absent, Kind, Named
from tests.fakes.record_batches import build
from tests.relay.both_directions import FLOWS, TP, A, B, CopiesBothWays
from tests.relay.fake_pair import FakePair

_TIMES = '"default.api.timeout.ms" = 30000\n"request.timeout.ms" = 2000'


_LOCAL_ID = 7
"""The producer id of :meth:`CopiesBothWays.write`."""


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CopiesBothWays:
    copies = CopiesBothWays(FakePair(monkeypatch), Way.SEQUENCES)
    (tmp_path / "mirror.toml").write_text(copies.config(cluster_lines=_TIMES), encoding="utf-8")
    return copies


def _both_directions(copies: CopiesBothWays, count: int = 6, back: CopyPolicy | None = None) -> None:
    policies = {A: copies.policy, B: back or copies.policy}
    for number in range(count):
        for side, policy in policies.items():
            copies.write(side, b"%d of %d" % (number, side))
            copies.copy_from(side, policy)
    for side, policy in policies.items():  # passes what the other direction has copied last
        copies.copy_from(side, policy)


def _append_as_flow(copies: CopiesBothWays, side: int, *values: bytes) -> int:
    """Append to ``side`` under the producer id of the flow that writes there; return the offset."""
    log = copies.clusters[side].log(TP.topic)
    end = log.end_offset
    batch = [one for one in log.batches() if not one.is_control and one.producer_id != _LOCAL_ID][-1]
    log.append(build(values, producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, base_sequence=900))
    return end


def _verify(folder: Path, side: int) -> PartitionResult:
    """Verify the flow that copies from ``side``."""
    path = folder / "mirror.toml"
    config = load(path)
    (flow,) = config.select(FLOWS[side])
    with open_sides(config, flow) as sides:
        plan = make_plan(VerifyRequest(flow=flow, has_others=flow.only_local), sides)
    tasks = [
        VerifyTask(config=path, secrets_dir=None, flow=flow.name, ranges=ranges, hashes=True)
        for ranges in plan.tasks(1)
    ]
    (result,) = [*plan.results, *(result for task in tasks for result in verify_task(task))]
    return result


def test_local_records_are_compared_in_both_directions_and_those_of_flows_left_out(
    copies: CopiesBothWays, tmp_path: Path
) -> None:
    _both_directions(copies)
    # The flow from B began when A had a record already.
    for side, foreign in ((A, 6), (B, 5)):
        result = _verify(tmp_path, side)
        assert result.verdict is not None
        assert (result.outcome, result.error, result.verdict.records) == ("equal", "", 6)
        assert result.verdict.named[Named.FOREIGN] == foreign
        assert result.verdict.named[Named.NOT_LOCAL] > 0
        assert (result.incomplete, exit_status([result], strict=True)) == ([], DONE)


def test_lost_and_doubled_copies_are_found_among_the_records_of_others(copies: CopiesBothWays, tmp_path: Path) -> None:
    _both_directions(copies)
    log = copies.clusters[B].log(TP.topic)
    end = log.end_offset
    copied = [one for one in log.batches() if b" of 0" in bytes(one.view)][-1]
    log.append(bytearray(copied.view))
    doubled = _verify(tmp_path, A)
    assert doubled.verdict is not None
    assert [(one.kind, one.target_offset) for one in doubled.verdict.differences] == [(Kind.DOUBLED, end)]
    log.truncate(0)
    lost = _verify(tmp_path, A)
    assert lost.verdict is not None
    assert [(one.kind, one.count) for one in lost.verdict.differences] == [(Kind.MISSING, 6)]


def test_record_that_came_back_is_not_complete(copies: CopiesBothWays, tmp_path: Path) -> None:
    """The target has it, but only because this flow has copied it there."""
    _both_directions(copies)
    place = _append_as_flow(copies, A, b"3 of 0")
    copies.copy_from(A)
    result = _verify(tmp_path, A)
    assert result.verdict is not None
    assert (result.outcome, result.verdict.absent) == ("equal", Absent(place, place + 1, 1))
    assert result.incomplete == [str(Absent(place, place + 1, 1))]
    assert (exit_status([result]), exit_status([result], strict=True)) == (DONE, 3)
    back = _verify(tmp_path, B)
    assert back.verdict is not None
    assert [(one.kind, one.target_offset) for one in back.verdict.differences] == [(Kind.FOREIGN, place)]


def test_records_of_flows_that_the_other_side_does_not_have_are_not_complete(
    copies: CopiesBothWays, tmp_path: Path
) -> None:
    """A flow from a third cluster has written them, or the other side has lost them."""
    _both_directions(copies)
    place = _append_as_flow(copies, A, b"from elsewhere", b"and more")
    copies.copy_from(A)
    result = _verify(tmp_path, A)
    assert result.verdict is not None
    assert result.verdict.absent == Absent(place, place + 2, 2)
    copies.write(B, b"and more", b"from elsewhere")
    found = _verify(tmp_path, A)
    assert found.incomplete == [], "another producer of the target has written them"


def test_originals_in_front_of_the_copy_are_found(copies: CopiesBothWays, tmp_path: Path) -> None:
    """The target had records before the copy to it began."""
    copies.write(B, *(b"early %d" % number for number in range(5)))
    copies.copy_from(B)
    copies.copy_from(A)
    _both_directions(copies)
    assert _verify(tmp_path, A).incomplete == []
    copies.clusters[B].log(TP.topic).delete_before(3)
    assert _verify(tmp_path, A).incomplete == [str(Absent(1, 4, 3))]


def test_record_under_the_id_of_the_flow_that_the_source_lacks_is_foreign(
    copies: CopiesBothWays, tmp_path: Path
) -> None:
    """Others may write to the target, but not as this flow: the source has lost it."""
    _both_directions(copies)
    place = _append_as_flow(copies, B, b"lost on the source")
    result = _verify(tmp_path, A)
    assert result.verdict is not None
    assert [(one.kind, one.target_offset) for one in result.verdict.differences] == [(Kind.FOREIGN, place)]


def test_originals_are_found_that_the_flow_back_changes(copies: CopiesBothWays, tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(path.read_text() + 'headers = { from = "b" }\n')
    _both_directions(copies, back=replace(copies.policy, headers=(("from", b"b"),)))
    for side in (A, B):
        result = _verify(tmp_path, side)
        assert (result.outcome, result.incomplete) == ("equal", [])
    path.write_text(path.read_text().replace("headers", "# headers"))
    assert len(_verify(tmp_path, A).incomplete) == 1


def test_side_that_is_never_written_to_is_complete(copies: CopiesBothWays, tmp_path: Path) -> None:
    for number in range(3):
        copies.write(A, b"%d" % number)
        for side in (A, B):
            copies.copy_from(side)
    for side in (A, B):
        result = _verify(tmp_path, side)
        assert (result.outcome, result.incomplete) == ("equal", [])


def test_what_flows_have_written_behind_the_progress_is_not_complete(copies: CopiesBothWays, tmp_path: Path) -> None:
    _both_directions(copies)
    place = _append_as_flow(copies, A, b"not looked for yet")
    result = _verify(tmp_path, A)
    assert result.incomplete == [f"source {place} to {place} not compared: they are not copied yet"]
