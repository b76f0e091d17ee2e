"""Positions of consumer groups behind a takeover: they go forward from those of MirrorMaker 2. Brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from mirror.client import Producer, TopicPartition
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.wire.decode import records_of
from tests.fakes.cluster import GroupOffset
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import FakeMirrorMaker

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
DELETING = {"on-group-deleted": "delete"}
CHECKPOINTS = "paris.checkpoints.internal"
BY_MM2 = {"early": Checkpoint(3, 3), "late": Checkpoint(8, 8), "at the end": Checkpoint(14, 8)}
"""It has syncs at 0 -> 2 and 5 -> 7: so 3 becomes 3, and what is behind 5 becomes 8."""


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    """Two records of others, twelve of the source; a flow that has taken over, and copied the rest."""
    mm2 = FakeMirrorMaker(monkeypatch)
    for topic in (group_topic_of(FLOW), CHECKPOINTS):
        mm2.pair.target.add_topic(topic)
    mm2.write(*(b"%d" % number for number in range(14)))
    mm2.pair.log().append_values(b"of", b"others")
    mm2.copy(0, 9, synced=(0, 5))
    mm2.store(6)
    _write_checkpoints(mm2)
    for group, one in BY_MM2.items():
        mm2.pair.source.groups[group][SOURCE] = GroupOffset(one.source, 0, "")
    with mm2.takeover() as takeover:
        assert takeover.run().is_complete
    assert mm2.pair.copy().outcome is Outcome.COMPLETE
    return mm2


def _write_checkpoints(mm2: FakeMirrorMaker) -> None:
    with Producer({"bootstrap.servers": mm2.pair.target.bootstrap}) as producer:
        for group, one in BY_MM2.items():
            key = CheckpointKey(group, TARGET)
            producer.send(CHECKPOINTS, 0, key=key.to_bytes(), value=one.to_bytes()).result()


@pytest.fixture
def rounds(mm2: FakeMirrorMaker) -> Iterator[CheckpointedRounds]:
    with _rounds(mm2) as rounds:
        yield rounds


@contextmanager
def _rounds(mm2: FakeMirrorMaker, **groups: str) -> Iterator[CheckpointedRounds]:
    flow = FlowConfig.model_validate(
        {"name": FLOW, "source": "paris", "target": "berlin", "topics": ["t"]}
        | {
            "mirrormaker": {"checkpoints": True},
            "groups": {"include": ["early|late|at the end"], "sync": True, **groups},
        }
    )
    servers = {"paris": mm2.pair.source.bootstrap, "berlin": mm2.pair.target.bootstrap}
    clusters: dict[str, Any] = {
        name: ClusterConfig(name=name, options={"bootstrap.servers": address}) for name, address in servers.items()
    }
    with ExitStack() as resources:
        config = MirrorConfig(clusters=clusters, flows={FLOW: flow})
        yield resources.enter_context(CheckpointedRounds(config, flow))


def test_checkpoints_go_on_without_a_step_back_and_are_exact(mm2: FakeMirrorMaker, rounds: CheckpointedRounds) -> None:
    assert rounds.round().problems == ()
    records = [one for batch in mm2.pair.target.log(CHECKPOINTS).batches() for one in records_of(batch)]
    last = {key.group: Checkpoint.parse(one.value) for one in records if (key := CheckpointKey.parse(one.key))}
    assert last == {"early": Checkpoint(3, 5), "late": Checkpoint(8, 10), "at the end": Checkpoint(14, 16)}
    assert all(found is not None and found.target >= BY_MM2[group].target for group, found in last.items())


def test_groups_on_the_target_get_the_exact_positions(mm2: FakeMirrorMaker, rounds: CheckpointedRounds) -> None:
    rounds.round()
    assert {group: mm2.pair.target.groups[group][TARGET].offset for group in BY_MM2} == {
        "early": 5,
        "late": 10,
        "at the end": 16,
    }


def test_offsets_that_mirrormaker_has_committed_are_replaced(mm2: FakeMirrorMaker, rounds: CheckpointedRounds) -> None:
    """One of them is not of its last checkpoint: a consumer has committed it."""
    for group, checkpoint in BY_MM2.items():
        mm2.pair.target.groups[group][TARGET] = GroupOffset(checkpoint.target, 0, "")
    mm2.pair.target.groups["late"][TARGET] = GroupOffset(9, 0, "")
    # As if it had not begun yet: the takeover is done again.
    mm2.pair.target.groups[group_of(FLOW, TARGET)].clear()
    mm2.store(13)
    with mm2.takeover(includes_group=lambda group: group != "at the end") as takeover:
        report = takeover.run()
    assert (report.is_complete, report.groups) == (True, ["early"])
    rounds.round()
    assert {group: mm2.pair.target.groups[group][TARGET].offset for group in BY_MM2} == {
        "early": 5,
        "late": 9,
        "at the end": 8,
    }


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_offsets_that_were_taken_over_are_not_deleted_with_those_on_the_source(
    mm2: FakeMirrorMaker, again: bool
) -> None:
    """MirrorMaker 2 has committed them, and the flow has not replaced them yet: consumers may have moved there.

    ``again``: the flow has committed others before it was handed back.
    """
    target, source = mm2.pair.target.groups, mm2.pair.source.groups
    if again:
        with _rounds(mm2, **DELETING) as rounds:
            rounds.round()
        _write_checkpoints(mm2)
    for group, checkpoint in BY_MM2.items():
        target[group][TARGET] = GroupOffset(checkpoint.target, 0, "")
    target[group_of(FLOW, TARGET)].clear()
    mm2.store(13)
    with mm2.takeover(includes_group=lambda _: True) as takeover:
        assert takeover.run().groups == ["at the end", "early", "late"]
    del source["early"]
    with _rounds(mm2, **DELETING) as rounds:
        for _ in range(2):
            rounds.round()
    assert {group: target[group][TARGET].offset for group in BY_MM2 if TARGET in target[group]} == {
        "early": BY_MM2["early"].target,
        "late": 10,
        "at the end": 16,
    }


def test_offsets_that_the_flow_has_replaced_are_deleted_with_those_on_the_source(
    mm2: FakeMirrorMaker,
) -> None:
    target = mm2.pair.target.groups
    target["early"][TARGET] = GroupOffset(BY_MM2["early"].target, 0, "")
    target[group_of(FLOW, TARGET)].clear()
    mm2.store(13)
    with mm2.takeover(includes_group=lambda _: True) as takeover:
        assert takeover.run().groups == ["early"]
    with _rounds(mm2, **DELETING) as rounds:
        rounds.round()
        assert target["early"][TARGET].offset == 5
        del mm2.pair.source.groups["early"]
        rounds.round()
    assert TARGET not in target["early"]
