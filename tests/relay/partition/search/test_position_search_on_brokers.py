"""The search for the exact position on real brokers: what raw producers appended before a fence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import LATEST, Admin, NewTopic, TopicPartition
from mirror.errors import FlowError, KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.partition.search.position_search import LogPositionSearch
from mirror.relay.progress.committed import NO_TOTALS, Progress
from mirror.relay.progress.position import Appenders, FoundPosition, PositionQuery
from mirror.relay.progress.target_log import TargetMark
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from mirror.wire.records import Batch
from tests.conformance.raw_brokers import Identity, RawProducer, RealWire
from tests.copying.writers import Made, batch_of, made, transactional, write, write_batches
from tests.relay.searching import find
from tests.topic_creation import create_topics

TIMEOUT_MS = 60_000  # the coordinator repeats what was lost on the way to it only after 30 s
EXACT = Appenders(frozenset(), ended=True)


class Site:
    """A source and a target partition, and the attempts that copy from one to the other."""

    def __init__(self, source: Cluster, target: Cluster, unique: Callable[[str], str], level: int) -> None:
        self.source_servers, self.target_servers = source.bootstrap_servers, target.bootstrap_servers
        self.source = TopicPartition(unique("t"), 0)
        self.target = TopicPartition(unique("x.t"), 0)
        self.id = unique("mirror")
        self.admins = [Admin({"bootstrap.servers": servers}) for servers in (self.source_servers, self.target_servers)]
        for admin, tp in zip(self.admins, (self.source, self.target), strict=True):
            create_topics(admin, [NewTopic(tp.topic, 1, configs={"retention.ms": "-1"})])
        self.wire = RealWire(self.target_servers, level)
        self.raw = RawProducer(self.wire, self.id)
        self.attempt: ProducerId | None = None
        self.sequence = 0
        self.search = self.new_search()

    def new_search(self, **policy: Any) -> LogPositionSearch:
        source, target = ({"bootstrap.servers": servers} for servers in (self.source_servers, self.target_servers))
        return LogPositionSearch(source, target, CopyPolicy(**policy))

    def close(self) -> None:
        self.search.close()
        self.wire.close()
        for admin in self.admins:
            admin.close()

    # --- the source

    def write(self, *batches: Batch) -> None:
        write_batches(self.source_servers, self.source.topic, batches)

    # --- the target

    def fence(self) -> ProducerId:
        """As an attempt begins: an empty transaction with the target partition in it."""
        who = self.raw.init()
        self.raw.begin(who, self.target)
        answer = self.raw.end(who, commit=True)
        assert answer.error_code == 0
        if self.wire.level > 1:
            who = Identity(answer.producer_id, answer.producer_epoch)
        self.attempt, self.sequence = ProducerId(who.producer_id, who.epoch), 0
        return self.attempt

    def append(self, records: Sequence[Made], codec: str = "none") -> None:
        assert self.attempt is not None
        # The leader learns of the fence a moment after it was committed.
        self.await_marker()
        self.produce(batch_of(records, codec), self.attempt, self.sequence)
        self.sequence += len(records)

    def produce(self, batch: Batch, attempt: ProducerId, sequence: int, *, in_transaction: bool = False) -> None:
        batch.patch(*attempt, sequence, transactional=in_transaction)
        part = ProducePartition(0, Records.of((bytearray(batch.view),)))
        name = self.id if in_transaction else None
        body = ProduceRequest(-1, 10_000, (ProduceTopic(self.target.topic, None, (part,)),), name)
        assert self.wire.ask(Api.PRODUCE, 11, body).responses[0].partition_responses[0].error_code == 0

    def await_marker(self) -> None:
        assert self.attempt is not None
        find(self.search, replace(self.query(), appenders=EXACT), TIMEOUT_MS)

    def transaction(self, records: Sequence[Made], *, commit: bool) -> None:
        """As an attempt of the other way writes."""
        who = self.raw.init()
        self.raw.begin(who, self.target)
        self.produce(batch_of(records), ProducerId(who.producer_id, who.epoch), 0, in_transaction=True)
        assert self.raw.end(who, commit=commit, version=4).error_code == 0

    def foreign(self, records: Sequence[Made]) -> None:
        write_batches(self.target_servers, self.target.topic, [batch_of(records)])

    def end(self) -> int:
        return self.admins[1].list_offsets({self.target: LATEST}, isolation="read_uncommitted")[self.target].offset

    # --- the search

    def query(self, mark: int = 0, offset: int = 0, leader_epoch: int | None = None) -> PositionQuery:
        assert self.attempt is not None
        progress = Progress(
            offset=offset,
            leader_epoch=leader_epoch,
            source_cluster_id="s",
            topic_id="",
            generation=5,
            target=TargetMark(topic_id="", end=mark),
        )
        ids = frozenset({self.attempt.producer_id})
        return PositionQuery(
            source=self.source,
            target=self.target,
            progress=progress,
            appenders=Appenders(ids, ended=False),
            fence=self.attempt,
        )

    def find(self, mark: int = 0, offset: int = 0) -> FoundPosition:
        found = find(self.search, self.query(mark, offset), TIMEOUT_MS)
        assert found.progress.generation == 5
        assert found.progress.target is not None
        assert found.progress.target.end < self.end(), "the mark is before the marker"
        return found


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def site(
    request: pytest.FixtureRequest, source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str]
) -> Iterator[Site]:
    site = Site(source_cluster, target_cluster, unique, request.param)
    yield site
    site.close()


def test_nothing_appended_leaves_the_progress(site: Site) -> None:
    site.write(batch_of(made(40)))
    site.fence()
    found = site.find(offset=7)
    assert (found.progress.offset, found.appended) == (7, NO_TOTALS)
    site.foreign(made(3))
    site.fence()
    assert site.find(offset=7).progress.offset == 7


def test_appended_beyond_the_progress_is_found_in_the_log(site: Site) -> None:
    """Whole, re-encoded and partial batches, behind another attempt's, among foreign and aborted ones."""
    batches = [batch_of(made(40, first=first), "lz4") for first in range(0, 400, 40)]
    site.write(*batches)
    site.fence()
    mark = site.end()
    site.append(made(40), "lz4")
    site.fence()
    site.append(made(25, first=40), "gzip")
    site.foreign(made(9, first=1_000))
    site.append(made(5, first=65))
    site.transaction(made(30, first=70), commit=False)
    site.fence()
    site.append(made(60, first=70), "zstd")
    before = site.end()
    site.fence()
    found = site.find(min(mark, 1))
    assert (found.progress.offset, found.progress.leader_epoch) == (130, 0)
    assert (found.appended.records, found.appended.batches) == (130, 4)
    assert found.appended.bytes > 0
    assert site.find(before).progress.offset == 0


def test_committed_transactions_of_the_copy_count(site: Site) -> None:
    """The offsets topic may have lost the commits of their progress."""
    site.write(batch_of(made(40)))
    site.transaction(made(10), commit=True)
    site.fence()
    assert site.find().progress.offset == 10


def test_transactions_and_aborted_records_of_the_source_are_passed(site: Site) -> None:
    producer = transactional(site.source_servers, site.id)
    for first, commit in ((0, True), (90, False), (10, True)):
        producer.begin_transaction()
        write(producer, site.source.topic, made(10, first=first))
        producer.commit_transaction(20) if commit else producer.abort_transaction(20)
    site.fence()
    site.append(made(15))
    site.fence()
    assert site.find().progress.offset == 27, "ten records, a marker, ten aborted ones, a marker, five records"
    site.append(made(5, first=15))
    site.fence()
    assert site.find().progress.offset == 32


def test_what_the_flow_changes_is_found(site: Site) -> None:
    site.write(batch_of(made(40)))
    site.fence()
    site.append([one._replace(headers=(*one.headers, ("from", b"x"))) for one in made(6)])
    site.fence()
    assert find(site.search, site.query(), TIMEOUT_MS).progress.offset == 6, "they may have been edited since"
    with site.new_search(headers=(("from", b"x"),), compression="lz4") as search:
        assert find(search, site.query(), TIMEOUT_MS).progress.offset == 6


def test_unproved_position_is_an_error_never_a_count(site: Site) -> None:
    site.write(batch_of(made(40)))
    site.fence()
    mark = site.end()
    site.append([*made(4), Made(b"other", b"record")])
    site.fence()
    with pytest.raises(FlowError) as raised:
        find(site.search, site.query(mark, 0), TIMEOUT_MS)
    text = str(raised.value)
    assert text.startswith("position-unproved: ")
    named = (str(site.source), str(site.target), "offset 0", f"offset {mark}", "differs in its key", "start-over")
    assert all(name in text for name in named), text


def test_retention_at_the_source_is_bridged_only_by_what_is_left_of_the_appended(site: Site) -> None:
    site.write(*[batch_of(made(10, first=first)) for first in range(0, 40, 10)])
    site.fence()
    site.append(made(15))
    site.fence()
    site.admins[0].delete_records({site.source: 12})
    assert site.find().progress.offset == 15
    site.admins[0].delete_records({site.source: 20})
    with pytest.raises(FlowError, match=r"position-unproved.*20 are gone"):
        find(site.search, site.query(), TIMEOUT_MS)


def test_retention_at_the_target_is_bridged_by_unique_records_only(site: Site) -> None:
    site.write(*[batch_of(made(10, first=first)) for first in range(0, 40, 10)])
    site.fence()
    site.await_marker()
    mark = site.end()
    site.append(made(10))
    site.append(made(8, first=10))
    site.fence()
    site.admins[1].delete_records({site.target: mark + 4})
    assert site.find(mark).progress.offset == 18, "the log begins within a batch"
    site.admins[1].delete_records({site.target: mark + 10})
    found = site.find(mark)
    assert (found.progress.offset, found.appended.records) == (18, 8)
    site.admins[1].delete_records({site.target: mark + 18})
    with pytest.raises(FlowError, match=r"position-unproved.*begins at offset"):
        find(site.search, site.query(mark), TIMEOUT_MS)
    assert site.find(mark + 18, 18).progress.offset == 18
    assert site.find(mark, 40).progress.offset == 40, "the source has nothing that could have been appended"


def test_equal_records_are_unproved_once_the_beginning_is_gone(site: Site) -> None:
    site.write(*[batch_of([Made(b"k", b"v")] * 10) for _ in range(4)])
    site.fence()
    mark = site.end()
    site.append([Made(b"k", b"v")] * 10)
    site.append([Made(b"k", b"v")] * 3)
    site.fence()
    assert site.find(mark).progress.offset == 13
    site.admins[0].delete_records({site.source: 2})
    with pytest.raises(FlowError, match="more than one place"):
        find(site.search, site.query(mark), TIMEOUT_MS)
    end = site.end()
    site.fence()
    assert find(site.search, replace(site.query(end, 5), appenders=EXACT), TIMEOUT_MS).progress.offset == 5


def test_recreated_source_is_unproved(site: Site) -> None:
    site.write(batch_of(made(10)))
    site.fence()
    site.append(made(4))
    site.fence()
    query = site.query()
    other = replace(query.progress, topic_id="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
    with pytest.raises(FlowError, match=r"position-unproved.*is not the log that was copied"):
        find(site.search, replace(query, progress=other), TIMEOUT_MS)


def test_missing_marker_is_a_timeout_that_names_the_target(site: Site) -> None:
    fence = site.fence()
    query = replace(site.query(), fence=ProducerId(fence.producer_id, fence.epoch + 1))
    with pytest.raises(KafkaTimeout, match=rf"{site.target}.*epoch {fence.epoch + 1}"):
        find(site.search, query, 300)


def test_marker_is_awaited(site: Site) -> None:
    fence = site.fence()
    # Under version 2, the end of a transaction raises the epoch, too.
    upcoming = ProducerId(fence.producer_id, fence.epoch + site.wire.level)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(find, site.search, replace(site.query(), fence=upcoming), TIMEOUT_MS)
        assert site.fence() == upcoming
        assert waiting.result(TIMEOUT_MS).progress.offset == 0
