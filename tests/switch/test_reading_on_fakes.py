"""What is read of two clusters in memory, in each state of a switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.client import AclOperation, Admin, TopicPartition
from mirror.cluster.acls import write_denial
from mirror.config.load import load
from mirror.errors import ClientClosed, KafkaTimeout
from mirror.relay.progress.latch import Latch, read_latch
from mirror.switch import reading
from mirror.switch.facts import Ends, Facts, FlowLatch
from mirror.switch.pause import FlowPace
from mirror.switch.readiness import blockers
from mirror.switch.reading import FactReader, writers_of
from mirror.switch.record import State
from mirror.wire.api import Api
from tests.alignment.permissions.authorizer import topic
from tests.fakes.api_admin import FakeGroup
from tests.fakes.cluster import GroupOffset
from tests.fakes.log import ProducerState
from tests.relay.fake_pair import FakePair
from tests.switch.test_machine import FENCED, MOVED, OPEN, PROVED

TP = TopicPartition("t", 0)


class Site:
    """A topic of ten records with a group at record 7, and the reader of a switch of its flow."""

    def __init__(self, pair: FakePair, folder: Path) -> None:
        self.pair = pair
        pair.write(*(b"%d" % number for number in range(10)))
        pair.target.add_topic("t")
        pair.source.groups["g"][TP] = GroupOffset(7, -1, "")
        file = folder / "mirror.toml"
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            '[flows.f]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nnaming = "identity"\n[flows.f.groups]\n'
            '[switches.s]\nflows = ["f"]\n'
        )
        self.config = load(file)
        self.source, self.target = (Admin({"bootstrap.servers": one.bootstrap}) for one in (pair.source, pair.target))
        self.reader = FactReader(self.config, self.config.switch("s"), self.source, self.target)

    def with_way_back(self) -> FactReader:
        """The reader of the same switch with a flow back, whose latch is on the source."""
        back = self.config.flows["f"].model_copy(update={"name": "b", "source": "berlin", "target": "paris"})
        config = self.config.model_copy(update={"flows": {**self.config.flows, "b": back}})
        switch = self.config.switch("s").model_copy(update={"back": ("b",)})
        return FactReader(config, switch, self.source, self.target)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    found = Site(FakePair(monkeypatch, source_brokers=2), tmp_path)
    yield found
    found.source.close()
    found.target.close()


def test_the_fence_is_read_of_each_broker(site: Site) -> None:
    ready = replace(FENCED, state=State.READY)
    facts = site.reader.read(ready)
    assert (facts.topics, facts.denied, facts.denied_everywhere) == ({"t": 1}, set(), set())
    site.source.create_acls([write_denial("t"), write_denial("u")])
    facts = site.reader.read(replace(ready, rollback="x"))
    assert (facts.topics, facts.denied, facts.denied_everywhere) == (None, {"t", "u"}, {"t", "u"})


def test_what_is_fenced_is_read_with_its_progress(site: Site) -> None:
    facts = site.reader.read(FENCED)
    assert (facts.ends, facts.progress, facts.is_copying) == ({"t": (Ends(10, 10),)}, {"t": (0,)}, False)
    assert facts.open_transactions == {}


def test_the_pace_of_a_flow_that_has_not_run_is_not_known(site: Site) -> None:
    assert site.reader.paces() == [FlowPace("f", is_alive=False)]


def test_groups_and_latches_are_read_before_the_switch_opens(site: Site) -> None:
    facts = site.reader.read(PROVED)
    assert (facts.busy_groups, list(facts.positions or ())) == (set(), ["g"])
    site.pair.source.groups["g"][TP] = GroupOffset(8, -1, "")
    again = site.reader.read(MOVED)
    assert again.positions != facts.positions
    assert again.target_ends == {"t": (0,)}
    assert again.latches == {"f": FlowLatch(is_held=False, generation=0, by="")}


def test_an_open_switch_reads_the_target_only(site: Site) -> None:
    site.source.close()
    assert site.reader.read(OPEN).denied_on_target == set()
    with pytest.raises(ClientClosed):
        site.reader.topics()


def test_the_target_s_ends_and_its_groups_with_members_are_read(site: Site) -> None:
    record = replace(OPEN, topics=("t", "gone"), groups={"g": "at 3", "h": "at 0"})
    for group, state in {"g": "Stable", "h": "Empty", "other": "Stable"}.items():
        site.pair.target.admin.groups[group] = FakeGroup(state=state)
    assert site.reader.clients(record) == ({"t": (0,)}, {"g"})


@pytest.fixture
def no_latches_of_the_source(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source, which has the latch of the flow back, does not answer."""

    def read(options: Mapping[str, object], flow: str, _: int) -> Latch:
        if options["bootstrap.servers"] == site.pair.source.bootstrap:
            raise KafkaTimeout("paris does not answer")
        return read_latch(options, flow)

    monkeypatch.setattr(reading, "read_latch", read)


@pytest.mark.usefixtures("no_latches_of_the_source")
def test_a_switch_with_a_way_back_goes_on_behind_open_without_the_source(site: Site) -> None:
    assert site.with_way_back().read(OPEN).denied_on_target == set()


@pytest.mark.usefixtures("no_latches_of_the_source")
def test_a_rollback_with_a_way_back_waits_for_the_source(site: Site) -> None:
    facts = site.with_way_back().read(replace(MOVED, rollback="x"))
    assert (facts.source_away, facts.latches) == ("paris does not answer", None)


def test_the_fence_of_the_record_is_read_if_the_file_has_another_one(site: Site) -> None:
    site.source.create_acls([write_denial("t")])
    switch = site.config.switch("s").model_copy(update={"fence": "hook"})
    facts = FactReader(site.config, switch, site.source, site.target).read(replace(FENCED, rollback="x"))
    assert facts.denied == {"t"}
    assert site.reader.read(replace(FENCED, fence="hook", rollback="x")).denied is None


def test_the_fence_is_read_while_the_target_is_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Latch:
        raise KafkaTimeout("berlin does not answer")

    monkeypatch.setattr(reading, "read_latch", away)
    site.source.create_acls([write_denial("t")])
    site.target.close()
    facts = site.reader.read(replace(MOVED, rollback="x"))
    assert (facts.denied, facts.latches, facts.source_away) == ({"t"}, None, "")
    assert facts.target_away
    assert site.reader.read(replace(MOVED, state=State.ROLLED_BACK)) == Facts()
    with pytest.raises(ClientClosed):
        site.reader.read(replace(FENCED, state=State.READY, fence_ms=0))


def test_a_producer_without_an_id_is_said_to_be_one(site: Site) -> None:
    assert "enable.idempotence = false" in writers_of(site.source, ["t-0"])


def test_topics_without_acls_and_writers_that_the_target_refuses_are_named(site: Site) -> None:
    def found() -> list[str]:
        switch = site.config.switch("s")
        return [*blockers(site.config, switch, FactReader(site.config, switch, site.source, site.target))]

    assert any(line.startswith("topic t: no ACL of the source concerns it") for line in found())
    site.source.create_acls([topic("t", AclOperation.WRITE)])
    assert "topic t: the target does not allow WRITE to principal User:alice; grant it, or waive the topic" in found()


def test_a_topic_that_is_coupled_by_transactions_is_named_unless_it_is_waived(site: Site) -> None:
    source = site.pair.source
    source.add_topic("u")
    for name in ("t", "u"):
        source.log(name).producers[9] = ProducerState(0, last_ms=source.clock.unix_ms())

    def found(waived: tuple[str, ...] = ()) -> list[str]:
        switch = site.config.switch("s").model_copy(update={"waive": waived})
        lines = blockers(site.config, switch, FactReader(site.config, switch, site.source, site.target))
        return [line for line in lines if "transactions" in line]

    (line,) = found()
    assert line.startswith("transactions of producer id 9 write to topic u and to topic t: have a flow")
    assert found(("u",)) == []


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (
            1,
            "topic t cannot be copied: target topic t has 1 partition, 2 are needed, and nothing shows that",
        ),
        (
            3,
            "partition t-2: only berlin has this partition, with 0 offsets: keys go to other partitions than on paris;",
        ),
    ],
)
def test_a_target_topic_with_another_number_of_partitions_keeps_a_switch_from_beginning(
    site: Site, count: int, words: str
) -> None:
    """mirror/design/decisions/050-partition-counts.md"""
    site.pair.source.grow(site.pair.source.topics["t"], 2)
    site.pair.target.add_topic("t", count)
    lines = [*blockers(site.config, site.config.switch("s"), site.reader)]
    assert any(words in line for line in lines), "\n".join(lines)


def test_brokers_that_do_not_say_who_writes_keep_no_switch_from_beginning(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    del site.pair.source.versions[Api.DESCRIBE_PRODUCERS]  # before Apache Kafka 2.8
    lines = [*blockers(site.config, site.config.switch("s"), site.reader)]
    assert not any("transactions" in line for line in lines)
    assert "whether transactions couple partition t-0 to other topics is not known" in caplog.text
