"""Verification of flows in both directions: each side has records of its own, and those that a flow has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.relay.model.way import Way
from mirror.spark.flow_admins import open_admins
from mirror.spark.verification.planning import VerifyRequest, make_plan
from mirror.spark.verification.task import VerifyTask, run_tasks
from mirror.verify.results import PartitionResult
from mirror.verify.values import Kind, Named
from tests.relay.both_directions import FLOWS, TP, A, B, CopiesBothWays
from tests.relay.fake_pair import FakePair

_TIMES = '"default.api.timeout.ms" = 30000\n"request.timeout.ms" = 2000'


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CopiesBothWays:
    copies = CopiesBothWays(FakePair(monkeypatch), Way.SEQUENCES)
    text = [
        f'[clusters.{name}]\n"bootstrap.servers" = "{cluster.bootstrap}"\n{_TIMES}'
        for name, cluster in zip("ab", copies.clusters, strict=True)
    ]
    for flow, source, target in ((FLOWS[A], "a", "b"), (FLOWS[B], "b", "a")):
        lines = [f'source = "{source}"', f'target = "{target}"', 'naming = "identity"', 'origin = "local"']
        text += [f"[flows.{flow}]", *lines, f'topics = ["{TP.topic}"]']
    (tmp_path / "mirror.toml").write_text("\n".join(text) + "\n", encoding="utf-8")
    return copies


def _verify(folder: Path, side: int) -> PartitionResult:
    """Verify the flow that copies from ``side``."""
    path = folder / "mirror.toml"
    config = load(path)
    (flow,) = config.select(FLOWS[side])
    with open_admins(config, flow) as (source, target):
        plan = make_plan(VerifyRequest(flow=flow, has_others=flow.only_local), source, target)
    tasks = [
        VerifyTask(config=path, secrets_dir=None, flow=flow.name, ranges=ranges, hashes=True)
        for ranges in plan.tasks(1)
    ]
    (result,) = [*plan.results, *run_tasks(tasks)]
    return result


def test_local_records_are_compared_in_both_directions_and_those_of_flows_left_out(
    copies: CopiesBothWays, tmp_path: Path
) -> None:
    for number in range(6):
        for side in (A, B):
            copies.write(side, b"%d of %d" % (number, side))
            copies.copy_from(side)
    # The flow from B began when A had a record already.
    for side, foreign in ((A, 6), (B, 5)):
        result = _verify(tmp_path, side)
        assert result.verdict is not None
        assert (result.outcome, result.error, result.verdict.records) == ("equal", "", 6)
        assert result.verdict.named[Named.FOREIGN] == foreign
        assert result.verdict.named[Named.NOT_LOCAL] > 0


def test_lost_and_doubled_copies_are_found_among_the_records_of_others(copies: CopiesBothWays, tmp_path: Path) -> None:
    for number in range(6):
        for side in (A, B):
            copies.write(side, b"%d of %d" % (number, side))
            copies.copy_from(side)
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
