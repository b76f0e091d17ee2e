"""A flow's rounds write checkpoints of the positions that they commit, or only translate. Brokers in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import Fenced
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.wire.api import Api
from mirror.wire.decode import records_of
from mirror.wire.encode import BatchBuilder
from tests.fakes import errors
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
CHECKPOINTS = "paris.checkpoints.internal"
KEY = CheckpointKey("billing", TARGET)


class Site:
    """A copied topic, of which each tenth offset is not copied."""

    def __init__(self, pair: FakePair, resources: ExitStack) -> None:
        self.pair = pair
        self._resources = resources
        for topic in (group_topic_of(FLOW), CHECKPOINTS):
            pair.target.add_topic(topic)
        log = pair.source.log("t")
        for first in range(0, 100, 10):
            log.append_values(*(b"%d" % number for number in range(first, first + 8)))
            log.append_values(b"x", attributes=0x10, producer_id=7)
            log.end_transaction(7, commit=False)
        pair.copy()

    def rounds(
        self,
        *,
        delivery: str = "exactly-once",
        sync: bool = True,
        checkpoints: bool = True,
        beside_copies: bool = False,
    ) -> CheckpointedRounds:
        flow = FlowConfig.model_validate(
            {"name": FLOW, "source": "paris", "target": "berlin", "topics": ["t"], "delivery": delivery}
            | {"mirrormaker": {"checkpoints": checkpoints}, "groups": {"include": ["billing.*"], "sync": sync}}
        )
        servers = {"paris": self.pair.source.bootstrap, "berlin": self.pair.target.bootstrap}
        clusters: dict[str, Any] = {
            name: ClusterConfig(name=name, options={"bootstrap.servers": address}) for name, address in servers.items()
        }
        config = MirrorConfig(clusters=clusters, flows={FLOW: flow})
        rounds = CheckpointedRounds(config, flow, beside_copies=beside_copies)
        return self._resources.enter_context(rounds)

    def commit(self, offset: int, metadata: str = "") -> None:
        self.pair.source.groups[KEY.group][SOURCE] = GroupOffset(offset, 0, metadata)

    def at_target(self) -> int | None:
        found = self.pair.target.groups[KEY.group].get(TARGET)
        return None if found is None else found.offset

    def checkpoints(self) -> list[Checkpoint | None]:
        records = [record for batch in self.pair.target.log(CHECKPOINTS).batches() for record in records_of(batch)]
        assert {CheckpointKey.parse(record.key) for record in records} <= {KEY}
        return [Checkpoint.parse(record.value) for record in records]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with ExitStack() as resources:
        yield Site(FakePair(monkeypatch), resources)


def test_checkpoints_are_the_positions_that_are_committed(site: Site) -> None:
    rounds = site.rounds()
    for offset in (0, 57, 57, 58, 20, 100):
        site.commit(offset, f"at {offset}")
        assert rounds.round().problems == ()
    # 58 and 59 are of an aborted transaction: the next record is at 60.
    expected = [(0, 0), (57, 47), (58, 48), (20, 16), (100, 80)]
    assert site.checkpoints() == [Checkpoint(source, target, f"at {source}") for source, target in expected]
    assert site.at_target() == 80


def test_positions_are_translated_without_being_committed(site: Site) -> None:
    rounds = site.rounds(sync=False)
    site.commit(57)
    found = rounds.round()
    assert (found.written, found.sync) == (0, False)
    assert site.checkpoints() == [Checkpoint(57, 47)]
    assert site.at_target() is None
    assert site.pair.target.log(group_topic_of(FLOW)).end_offset == 0


def test_a_group_that_has_taken_over_on_the_target_keeps_its_checkpoints(site: Site) -> None:
    """Readers of checkpoints want to know where the group is on the source."""
    rounds = site.rounds()
    site.pair.target.groups[KEY.group][TARGET] = GroupOffset(5, 0, "theirs")
    site.commit(57)
    rounds.round()
    assert site.at_target() == 5
    assert site.checkpoints() == [Checkpoint(57, 47)]


def test_a_group_beyond_the_copy_has_a_checkpoint_at_its_end(site: Site) -> None:
    rounds = site.rounds()
    site.pair.write(*(b"%d" % number for number in range(10)))
    site.commit(105)
    rounds.round()
    assert site.checkpoints() == [Checkpoint(100, 80)]
    site.pair.copy()
    rounds.round()
    assert site.checkpoints()[1:] == [Checkpoint(105, 86)]


def test_flows_without_checkpoints_write_none(site: Site) -> None:
    site.commit(57)
    site.rounds(checkpoints=False).round()
    assert (site.at_target(), site.checkpoints()) == (47, [])


def test_checkpoints_that_are_refused_keep_no_offset_from_being_committed(site: Site) -> None:
    refused = Action(errors={TopicPartition(CHECKPOINTS, 0): errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.PRODUCE, refused, times=None)
    site.commit(57)
    rounds = site.rounds()
    (problem,) = rounds.round().problems
    assert problem.startswith("checkpoints could not be written: ")
    assert site.at_target() == 47
    site.pair.target.control.clear()
    assert rounds.round().problems == ()
    assert site.checkpoints() == [Checkpoint(57, 47)]


@pytest.mark.parametrize(("delivery", "goes_back"), [("exactly-once", True), ("at-least-once", False)])
def test_an_exact_position_replaces_a_later_one_unless_records_are_repeated(
    site: Site, delivery: str, goes_back: bool, written_before: Callable[[Checkpoint], None]
) -> None:
    """The target has lost records, or has been made again, since the last checkpoint was written."""
    written_before(Checkpoint(50, 90))
    site.commit(57)
    site.rounds(delivery=delivery).round()
    assert site.checkpoints() == [Checkpoint(50, 90), *([Checkpoint(57, 47)] if goes_back else [])]


def test_a_withdrawn_position_has_a_checkpoint_with_the_group_s_source_offset(site: Site) -> None:
    """The target has lost records in front of the position, which is not known until they are copied again."""
    rounds = site.rounds()
    site.pair.write(*(b"%d" % number for number in range(10)))
    site.pair.copy()
    site.commit(105)
    rounds.round()
    site.pair.target.elect_uncleanly(*TARGET, 1, 81)
    site.pair.target.log(TARGET.topic).append_values(*(b"foreign" for _ in range(60)))
    site.commit(106)
    rounds.round()
    assert site.at_target() == 81
    assert site.checkpoints() == [Checkpoint(105, 86), Checkpoint(106, 81)]


@pytest.fixture
def written_before(site: Site) -> Callable[[Checkpoint], None]:
    """Append a checkpoint, as an earlier run."""

    def write(checkpoint: Checkpoint) -> None:
        builder = BatchBuilder("none", 16_384)
        builder.append(KEY.to_bytes(), checkpoint.to_bytes(), (), 0)
        site.pair.target.log(CHECKPOINTS).append(bytes(builder.build().view))

    return write


def test_rounds_beside_a_stream_notice_new_groups_and_other_runs(site: Site) -> None:
    site.commit(57)
    rounds = site.rounds(beside_copies=True)
    rounds.round()
    assert not rounds.has_news()
    site.rounds().round()
    site.commit(58)
    with pytest.raises(Fenced):
        rounds.round()
    assert site.checkpoints() == [Checkpoint(57, 47)], "none of a run that is fenced"
    rounds.round()
    assert site.checkpoints() == [Checkpoint(57, 47), Checkpoint(58, 48)]
    site.pair.source.groups["billing-2"][SOURCE] = GroupOffset(20, 0, "")
    eventually(rounds.has_news, what="the new group")  # they are listed once a second
