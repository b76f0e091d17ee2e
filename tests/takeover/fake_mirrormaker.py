"""MirrorMaker 2 as the clusters see it: what it copies, its positions and its offset syncs. Brokers in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from mirror.client import Producer, TopicPartition
from mirror.mirrormaker.connect_status import StatusKey
from mirror.mirrormaker.records import OffsetSync
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset, partition_of
from mirror.relay.progress.flow_topic import takeover_topic_of
from mirror.takeover.continuation import Continuation
from mirror.takeover.hand_back import hand_back
from mirror.takeover.hand_back_decision import HandBackReport
from mirror.takeover.places import Deployment
from mirror.takeover.sides import TakeoverRequest
from mirror.takeover.takeover_report import TakeoverReport
from mirror.takeover.takeover_topic import TakeoverTopic
from mirror.takeover.taking_over import Takeover
from mirror.takeover.watch import MirrorMakerWatch
from tests.fakes.api_admin import CLASSIC, FakeGroup, FakeMember
from tests.fakes.record_batches import values_of
from tests.relay.fake_pair import FLOW, FakePair

CONNECTOR = "MirrorSourceConnector"
POSITIONS = "mm2-offsets.paris.internal"
SYNCS = "mm2-offset-syncs.berlin.internal"


def only(report: TakeoverReport) -> Continuation:
    """Returns the decision about the only partition."""
    (decision,) = report.decisions
    return decision


class FakeMirrorMaker:
    """Copies topic "t" of cluster "paris" to "paris.t" of cluster "berlin", one record to a batch."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        positions: str = POSITIONS,
        connector: str = CONNECTOR,
        on_source: bool = False,
        **pair: Any,
    ) -> None:
        """``on_source``: the topic of the positions is on the source."""
        self.pair = FakePair(monkeypatch, **pair)
        self.positions, self.connector = positions, connector
        self.warned: Final = list[str]()
        self._stores: Final = self.pair.source if on_source else self.pair.target
        self._stores.add_topic(positions, 25)
        self.pair.source.add_topic(SYNCS)
        self.pair.target.add_topic(takeover_topic_of(FLOW))

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Records of the source, one to a batch."""
        for value in values:
            self.pair.write(value, partition=partition)

    def copy(self, start: int, end: int, *, partition: int = 0, synced: tuple[int, ...] = ()) -> None:
        """Copies the source's offsets ``[start, end)``; those in ``synced`` have an offset sync."""
        source, target = self.pair.source.log("t", partition), self.pair.log(partition)
        for batch in source.batches():
            if batch.is_control or not start <= batch.base_offset < end:
                continue
            at = target.append_values(*values_of(batch.view))
            if batch.base_offset in synced:
                self.sync(batch.base_offset, at, partition=partition)

    def sync(self, source: int, target: int, *, partition: int = 0) -> None:
        one = OffsetSync(TopicPartition("t", partition), source, target)
        with self._producer(self.pair.source.bootstrap) as producer:
            producer.send(SYNCS, 0, key=one.key(), value=one.value()).result()

    def store(self, offset: int | None, *, partition: int = 0, topic: str = "t") -> None:
        """Stores the last copied offset; None is a tombstone."""
        self.store_under(SourceOffsetKey(self.connector, "paris", TopicPartition(topic, partition)).to_bytes(), offset)

    def store_under(self, key: bytes, offset: int | bytes | None) -> None:
        """Stores the last copied offset, or any value, under this key; None is a tombstone."""
        with self._producer(self._stores.bootstrap) as producer:
            value = encode_offset(offset) if isinstance(offset, int) else offset
            producer.send(self.positions, partition_of(key), key=key, value=value).result()

    def put(
        self, topic: str, connector: str, state: str | None, *, task: int | None = None, worker: str = "w:1"
    ) -> None:
        """Writes the state of a connector, or of a task, as a worker does; None is a tombstone."""
        status = {"state": state, "trace": None, "worker_id": worker, "generation": 7}
        value = None if state is None else json.dumps(status).encode()
        key = StatusKey(connector, task).to_bytes()
        with self._producer(self._stores.bootstrap) as producer:
            producer.send(topic, partition_of(key, 5), key=key, value=value).result()

    def workers(self, group: str, count: int) -> None:
        """So many workers are members of this group."""
        members = [FakeMember(f"connect-{number}", raw=b"\0\1") for number in range(count)]
        self._stores.admin.groups[group] = FakeGroup(CLASSIC, "Stable" if count else "Empty", members, "connect")

    @contextmanager
    def watch(self, copies: Callable[[str], bool] = {"t"}.__contains__) -> Iterator[MirrorMakerWatch]:
        """That of a run that begins now; its warnings go to ``warned``."""
        options = {"bootstrap.servers": self.pair.target.bootstrap}
        topic = TakeoverTopic(options, FLOW)
        records = [(one, {"bootstrap.servers": self._stores.bootstrap}) for one in topic.read(30_000)]
        clock = self.pair.target.clock
        with MirrorMakerWatch(FLOW, topic, records, copies=copies, warn=self.warned.append, clock=clock) as watch:
            yield watch

    @contextmanager
    def _producer(self, bootstrap: str) -> Iterator[Producer]:
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            yield producer

    def takeover(self, *, pause: Callable[[float], None] = lambda _: None, **request: Any) -> Takeover:
        one = self._request(**request)
        return Takeover(one, *self._sides(), **self._positions(one), clock=self.pair.target.clock, pause=pause)

    def run(self, **request: Any) -> TakeoverReport:
        """Takes over, and returns the report."""
        with self.takeover(**request) as takeover:
            return takeover.run()

    def hand_back(self, *, pause: Callable[[float], None] = lambda _: None, **request: Any) -> HandBackReport:
        one = self._request(**request)
        return hand_back(one, *self._sides(), **self._positions(one), clock=self.pair.target.clock, pause=pause)

    def _request(self, **request: Any) -> TakeoverRequest:
        targets = {
            TopicPartition("t", number): TopicPartition("paris.t", number) for number in range(self.pair.partitions)
        }
        return TakeoverRequest(
            flow=FLOW,
            deployment=Deployment(source="paris", target="berlin", **request.pop("deployment", {})),
            targets=targets,
            exactly_once=self.pair.exactly_once,
            observed_s=0,
            **request,
        )

    def _positions(self, request: TakeoverRequest) -> dict[str, Any]:
        if request.deployment.offsets_cluster is None:
            return {}
        return {"positions_options": {"bootstrap.servers": self._stores.bootstrap}}

    def _sides(self) -> list[dict[str, str]]:
        return [{"bootstrap.servers": cluster.bootstrap} for cluster in (self.pair.source, self.pair.target)]
