"""The scene of a round: a source that grows, a target, the attempts at copying between them, and the judge."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mirror.client import Admin
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.progress_topic import topic_of
from tests.campaign.murder_judge import Judge, Place
from tests.campaign.murder_source import GrowingTopic
from tests.campaign.murder_worker import Order
from tests.campaign.victims import Victim
from tests.e2e.broker_side import Side

PARTITIONS: Final = 3
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(1 << 20)}
_LIMIT: Final = {"max_message_bytes": 10 << 20}


class Scene:
    """One round's own topics and flow; everything by chance comes from ``rng``.

    ``source_name`` is the source cluster's in a configuration, ``cluster_id`` its id.
    """

    source_name: Final = "a"

    def __init__(self, source: Side, target: Side, rng: random.Random) -> None:
        self.source: Final = source
        self.target: Final = target
        self.rng: Final = rng
        name = uuid.uuid4().hex[:8]  # not from rng: the same seed may come twice
        self.flow: Final = f"murder-{name}"
        self.judge: Final = Judge(self.flow, source, target)
        self.topics: Final = [
            GrowingTopic(source, f"plain-{name}", PARTITIONS, rng, compacted=False),
            GrowingTopic(source, f"compacted-{name}", 1, rng, compacted=True),
        ]
        self.places: Final = [
            Place(topic, f"{self.source_name}.{topic.topic}", partition)
            for topic in self.topics
            for partition in range(len(topic.truth))
        ]
        self.told: Final = Counter[str]()
        """How attempts ended, for the figures."""
        self._first_plan: list[int] | None = None
        self._ids: tuple[str, Mapping[str, str]] = ("", {})

    def open(self) -> None:
        """Make the topics."""
        for topic in self.topics:
            count, own = len(topic.truth), {k.replace(".", "_"): v for k, v in _COMPACTED.items()}
            self.source.create(topic.topic, count, **_LIMIT, **(own if topic.compacted else {}))
            self.target.create(f"{self.source_name}.{topic.topic}", count, **_LIMIT)
        self.target.create(topic_of(self.flow), cleanup_policy="compact")
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            told = admin.describe_topics([topic.topic for topic in self.topics])
            ids = {name: str(topic.topic_id) for name, topic in told.items()}
            self._ids = admin.describe_cluster().cluster_id, ids

    def close(self) -> None:
        """Leave nothing behind, as far as that is possible: the disk is small."""
        for topic in self.topics:
            with contextlib.suppress(Exception):
                topic.settle()
            with contextlib.suppress(Exception):
                self.source.delete(topic.topic)
            with contextlib.suppress(Exception):
                self.target.delete(f"{self.source_name}.{topic.topic}")
        with contextlib.suppress(Exception):
            self.target.delete(topic_of(self.flow))

    def grow(self) -> None:
        for topic in self.topics:
            topic.grow()

    # --- attempts

    def order(self, hold: tuple[str, int] | None = None, *, quick: bool = False) -> Order:
        """A plan of now, sometimes with the starts of an older one; ``quick``: with nothing to slow it down."""
        rng = self.rng
        starts, ends = self.judge.progress(self.places), self.judge.ends(self.places)
        if self._first_plan is None:
            self._first_plan = starts
        elif rng.random() < 0.3:
            starts = self._first_plan  # a plan that has become stale: the progress has to tell
        cluster_id, topic_ids = self._ids
        ranges = [
            Range(
                flow=self.flow,
                topic=place.source.topic,
                target_topic=place.target_topic,
                partition=place.partition,
                start=start,
                end=max(start, end),
                source_cluster_id=cluster_id,
                topic_id=topic_ids[place.source.topic],
            )
            for place, start, end in zip(self.places, starts, ends, strict=True)
        ]
        reading = {"bootstrap.servers": self.source.address}
        policy: dict[str, Any] = {}
        if not quick:
            reading["max.partition.fetch.bytes"] = str(rng.choice((20_000, 100_000, 1_000_000)))
            policy["commit_interval_ms"] = rng.choice((30, 200, 1_000))
            policy["max_bytes_per_second"] = rng.choice((0, 0, 3_000_000))
        return Order(
            source=reading,
            target={"bootstrap.servers": self.target.address, "delivery.timeout.ms": 60_000},
            ranges=ranges,
            policy=CopyPolicy(**policy),
            hold=hold,
        )

    @contextlib.contextmanager
    def attempt(self, hold: tuple[str, int] | None = None, *, quick: bool = False) -> Iterator[Victim]:
        with Victim(self.order(hold, quick=quick)) as victim:
            yield victim

    def finish(self) -> None:
        """An attempt that nobody harms: it must copy all there is."""
        with self.attempt(quick=True) as victim:
            results = victim.await_end()
        unfinished = [f"{one.outcome}: {one.error}" for one in results if one.outcome is not Outcome.COMPLETE]
        assert not unfinished, unfinished
        self.count(results)
        self.judge.check(self.places, complete=True)

    def count(self, results: list[RangeResult]) -> None:
        self.told.update(f"result: {one.outcome}" for one in results)
