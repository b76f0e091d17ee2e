"""One round: a growing source, a target, the attempts to copy between them, and the verifier."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mirror.client import Admin
from mirror.relay.batches.exactly_once_way import HOLD_MS
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from tests.campaign.kills.attempt import AttemptOrder
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.campaign.kills.growing_source import GrowingTopic
from tests.campaign.kills.verification import Place, Verifier
from tests.e2e.broker_side import Side

PARTITIONS: Final = 3
BY: Final = ("auto", "sequences", "transactions", "mixed")
"""How a round copies exactly once: as the flow's setting of that name; "mixed" draws it for each attempt."""
OLD: Final = 0.3
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(1 << 20)}
_WRITING: Final = {"delivery.timeout.ms": 60_000}
_BRIEFLY: Final = {"delivery.timeout.ms": 4_000, "request.timeout.ms": 2_000}
_LIMIT: Final = {"max_message_bytes": 10 << 20}


class KillRound:
    """The topics and the flow of one round. ``rng`` makes all random choices; ``by`` is one of :data:`BY`.

    ``source_name`` is the source cluster's in a configuration, ``cluster_id`` its id. ``forgets_soon``: the target's
    brokers forget producers within a round, so that batches may be retried for a short time only, and what is left to
    copy may become too old for sequences. ``old`` is how many of the plain records are too old from the beginning, from
    0 to 1; None draws it.
    """

    source_name: Final = "a"

    def __init__(
        self,
        source: Side,
        target: Side,
        rng: random.Random,
        by: str,
        *,
        forgets_soon: bool = False,
        old: float | None = None,
    ) -> None:
        self.source: Final = source
        self.target: Final = target
        self.rng: Final = rng
        self.by: Final = by
        self._writing: Final = _BRIEFLY if forgets_soon else _WRITING
        young = forgets_soon or by == "sequences"
        name = uuid.uuid4().hex[:8]  # Not from rng: a seed may be repeated.
        self.flow: Final = f"kills-{name}"
        self.verifier: Final = Verifier(self.flow, source, target)
        drawn = rng.choice((0, OLD))
        old = old if old is not None else 0 if young else drawn
        plain: dict[str, Any] = {"old": old, **({"young_ms": 0} if forgets_soon else {})}
        self.topics: Final = [GrowingTopic(source, f"plain-{name}", PARTITIONS, rng, compacted=False, **plain)]
        if not young:  # sequences refuse a compacted topic
            self.topics.append(GrowingTopic(source, f"compacted-{name}", 1, rng, compacted=True))
        self.places: Final = [
            Place(
                topic,
                f"{self.source_name}.{topic.topic}",
                partition,
                by in {"auto", "sequences"} and not (topic.compacted or topic.old or forgets_soon),
            )
            for topic in self.topics
            for partition in range(len(topic.truth))
        ]
        self.counts: Final = Counter[str]()
        """How many attempts began, and how often they ended in which way."""
        self._first_plan: list[int] | None = None
        self._ids: tuple[str, Mapping[str, str]] = ("", {})

    def open(self) -> None:
        """Create the topics."""
        for topic in self.topics:
            count, own = len(topic.truth), {k.replace(".", "_"): v for k, v in _COMPACTED.items()}
            self.source.create(topic.topic, count, **_LIMIT, **(own if topic.compacted else {}))
            self.target.create(f"{self.source_name}.{topic.topic}", count, **_LIMIT)
        for name in (topic_of(self.flow), offset_topic_of(self.flow)):
            self.target.create(name, cleanup_policy="compact")
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            topics = admin.describe_topics([topic.topic for topic in self.topics])
            ids = {name: str(topic.topic_id or "") for name, topic in topics.items()}
            self._ids = admin.describe_cluster().cluster_id, ids

    def close(self) -> None:
        """Delete the topics, as far as possible: the disk is small.

        A client that asked a restarting broker of 3.3 for its controller, and got none, would wait in vain for another
        answer until its timeout: new clients ask again.
        """
        source, target = Side(self.source.address), Side(self.target.address)
        for topic in self.topics:
            with contextlib.suppress(Exception):
                topic.settle()
            with contextlib.suppress(Exception):
                source.delete(topic.topic)
            with contextlib.suppress(Exception):
                target.delete(f"{self.source_name}.{topic.topic}")
        for name in (topic_of(self.flow), offset_topic_of(self.flow)):
            with contextlib.suppress(Exception):
                target.delete(name)

    def grow(self) -> None:
        for topic in self.topics:
            topic.grow()

    # --- attempts

    def order(self, hold: tuple[str, int] | None = None, *, quick: bool = False) -> AttemptOrder:
        """Plan a copy, sometimes with the starts of an older plan. ``quick``: without random limits."""
        rng = self.rng
        progress, ends = self.verifier.progress(self.places), self.verifier.ends(self.places)
        starts = [at.offset for at in progress]
        if self._first_plan is None:
            self._first_plan = starts
        elif rng.random() < 0.3:
            starts = self._first_plan  # A stale plan: the progress has to decide.
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
        by = rng.choice(("auto", "transactions"))
        policy: dict[str, Any] = {"exactly_once_by": by if self.by == "mixed" else self.by}
        if not quick:
            reading["max.partition.fetch.bytes"] = str(rng.choice((20_000, 100_000, 1_000_000)))
            policy["commit_interval_ms"] = rng.choice((30, 200, 1_000, 5_000))
            policy["max_bytes_per_second"] = rng.choice((0, 0, 3_000_000))
        return AttemptOrder(
            source=reading,
            target={"bootstrap.servers": self.target.address, **self._writing},
            ranges=ranges,
            policy=CopyPolicy(**policy),
            hold=hold,
            # Sequences begin again soon after an old batch, or not before the next attempt.
            way_hold_ms=rng.choice((0, 100, HOLD_MS)),
        )

    @contextlib.contextmanager
    def attempt(self, hold: tuple[str, int] | None = None, *, quick: bool = False) -> Iterator[AttemptProcess]:
        self.counts["attempts"] += 1
        with AttemptProcess(self.order(hold, quick=quick)) as attempt:
            yield attempt

    def finish(self) -> None:
        """Run an undisturbed attempt, which must copy everything."""
        with self.attempt(quick=True) as attempt:
            results = attempt.await_end()
        unfinished = [f"{one.outcome}: {one.error}" for one in results if one.outcome is not Outcome.COMPLETE]
        assert not unfinished, unfinished
        self.count(results)
        self.verifier.check_finished(self.places)

    def count(self, results: list[RangeResult]) -> None:
        self.counts.update(f"result: {one.outcome}" for one in results)
        self.counts.update(f"way: {one.way}" for one in results if one.way)
