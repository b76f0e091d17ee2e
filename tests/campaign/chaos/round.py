"""One round: a stream follows the load, faults are injected, and the copy is verified afterwards."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from mirror.errors import SandboxError
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from tests.campaign.chaos import process_counts
from tests.campaign.chaos.clusters import Clusters
from tests.campaign.chaos.faults import injection
from tests.campaign.chaos.injection import PREFIX, Effect, Injection, RoundContext, Topics
from tests.campaign.chaos.kafka_side import Place
from tests.campaign.chaos.load import Load
from tests.campaign.chaos.process_counts import Counts
from tests.campaign.chaos.reader import all_have_records
from tests.campaign.chaos.schedule import BROKERS, FaultKind, Schedule, ScheduledFault
from tests.campaign.chaos.stream import Stream
from tests.campaign.chaos.verification import Verification, settled
from tests.e2e.standalone import Standalone
from tests.polling import eventually

RATES: Final = {
    "plain": 300.0,
    "growing": 150.0,
    "failing": 75.0,
    "resumed": 75.0,
    "lossy": 75.0,
    "transactional": 200.0,
}
"""Records per second and topic."""
CODECS: Final = {"growing": "lz4", "failing": "gzip", "resumed": "snappy", "transactional": "zstd", "lossy": "lz4"}
_FOLLOWS_WITHIN_S: Final = 600.0
"""With 30 runnable processes on two cores it has taken 300 s."""
_QUIET_S: Final = 12.0
"""Longer than an epoch, so that what an epoch opens is counted, too."""
_POLL_S: Final = 0.5
_Later = tuple[float, str, Callable[[], Sequence[Any]]]
"""After how many seconds to do something, what to log then, and what to do."""
LOSSY: Final = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


@dataclass(slots=True)
class RoundResult:
    """The result of a round. ``findings`` is empty where nothing was wrong."""

    schedule: Schedule
    events: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    effects: list[tuple[ScheduledFault, Effect]] = field(default_factory=list)
    records: int = 0
    catch_up_s: float = 0.0
    before: Counts = field(default_factory=dict)
    after: Counts = field(default_factory=dict)

    @property
    def without_effect(self) -> list[FaultKind]:
        return [fault.kind for fault, effect in self.effects if not effect.count]


class Round:
    """A round on ``clusters``, with all its files in ``folder``. ``faketime`` is None where no clock can be stepped."""

    def __init__(
        self,
        clusters: Clusters,
        executors: Standalone,
        schedule: Schedule,
        folder: Path,
        faketime: Path | None,
        by: str = "auto",
    ) -> None:
        self.result: Final = RoundResult(schedule)
        self._began = time.monotonic()
        self._events: Final = folder / "events.txt"
        self._clusters: Final = clusters
        marker = uuid.uuid4().hex[:8]  # Not from the seed: a seed may be repeated on the same clusters.
        has_lossy = schedule.has(FaultKind.UNCLEAN_ELECTION)
        names = {name: f"{name}-{marker}" for name in Topics.PARTITIONS if name != "lossy" or has_lossy}
        topics = Topics(**names)
        self._stream: Final = Stream(folder, executors, faketime, marker, by)
        codecs = {names[purpose]: codec for purpose, codec in CODECS.items() if purpose in names}
        self._load: Final = Load(clusters.source.proxy.bootstrap_servers, schedule.seed, codecs)
        self._context: Final = RoundContext(clusters, self._stream, self._load, topics)
        self._active: Final = list[Injection]()

    def play(self) -> RoundResult:
        """Run the round. Any failure becomes a finding, and nothing of the round is left afterwards."""
        try:
            with self._load:
                self._begin()
                self._inject()
                self._load.stop()
                self._log("the load has stopped")
                self._verify()
        except (AssertionError, SandboxError, KafkaException, TimeoutError) as error:
            self.result.findings.append(f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - the next round has its own topics and stream
            self.result.findings.append(traceback.format_exc())
        finally:
            for active in self._active:  # Stopped processes do not end with their driver.
                with contextlib.suppress(Exception):
                    active.end()
            self._stream.end()
        self._clean()
        return self.result

    def _log(self, line: str) -> None:
        self.result.events.append(f"{time.monotonic() - self._began:6.1f} s {line}")
        with self._events.open("a", encoding="utf-8") as file:  # To follow a round that is in progress.
            file.write(self.result.events[-1] + "\n")

    def _begin(self) -> None:
        """Start the stream and the load, wait until the stream follows, and count what its processes have."""
        source, topics = self._clusters.source, self._context.topics
        for name, count in topics.counts.items():
            source.create(name, count)
        if topics.lossy:
            replicas = [self.result.schedule.seed % BROKERS + 1, (self.result.schedule.seed + 1) % BROKERS + 1]
            self._clusters.target.create(f"{PREFIX}{topics.lossy}", 1, assignment=[replicas], config=LOSSY)
        self._start_stream()
        for name, count in topics.counts.items():
            purpose = topics.purpose(name)
            write = self._load.write_transactions if purpose == "transactional" else self._load.write
            write(name, count, RATES[purpose])
        self._log("the load has begun")
        eventually(
            self._follows, within_s=_FOLLOWS_WITHIN_S, every_s=_POLL_S, what="a stream that follows all partitions"
        )
        self._log("the stream follows")
        until = time.monotonic() + _QUIET_S
        while time.monotonic() < until:
            now = process_counts.counted(self._stream.roles())
            self.result.before = process_counts.most(self.result.before, now)
            time.sleep(_POLL_S)
        missing = settled(self._stream.missing)
        assert not missing, f"before any fault: {missing}"

    def _start_stream(self) -> None:
        source, target, topics = self._clusters.source, self._clusters.target, self._context.topics
        self._stream.configure(
            self._clusters.configuration(source),
            self._clusters.configuration(target, tls=self.result.schedule.tls),
            [name for name in topics.counts if name != topics.resumed],
            [topics.resumed],
        )
        self._stream.start()
        # The load would slow down the start of all the JVMs.
        eventually(self._stream.has_executors, within_s=_FOLLOWS_WITHIN_S, every_s=_POLL_S, what="executors")

    def _follows(self) -> bool:
        self._stream.check()
        places = [(f"{PREFIX}{topic}", number) for topic, number in self._places()]
        all_exist = {topic for topic, _ in places} <= self._clusters.target.topics().keys()
        return all_exist and all_have_records(self._clusters.target.address, places)

    def _places(self) -> list[Place]:
        counts = {topic: self._clusters.source.partitions(topic) for topic in self._context.topics.counts}
        return [(topic, number) for topic, count in counts.items() for number in range(count)]

    # --- faults

    def _inject(self) -> None:
        """Inject the scheduled faults at their times, as far as the faults before them allow, and end all of them."""
        began = time.monotonic()
        numbers = itertools.count()  # Orders entries of the same time.
        timeline: list[tuple[float, int, str, Callable[[], Sequence[_Later]]]] = [
            (fault.at_s, next(numbers), str(fault), partial(self._begin_fault, injection(self._context, fault)))
            for fault in self.result.schedule.faults
        ]
        heapq.heapify(timeline)
        while timeline:
            at_s, _, line, act = heapq.heappop(timeline)
            while (early := began + at_s - time.monotonic()) > 0:
                self._stream.check()
                time.sleep(min(early, _POLL_S))
            self._log(line)
            later = act()
            for detail in self._context.log:
                self._log(f"  {detail}")
            self._context.log.clear()
            # A fault that begins late ends late.
            now_s = time.monotonic() - began
            for after_s, line_of_later, act_later in later:
                heapq.heappush(timeline, (now_s + after_s, next(numbers), line_of_later, act_later))
        for side in (self._clusters.source, self._clusters.target):
            for line in side.heal():
                self._log(line)
        self._log("all faults have ended")

    def _begin_fault(self, begun: Injection) -> Sequence[_Later]:
        """Begin a fault, and return its steps and its end: when, what to log, and what to do."""
        fault = begun.fault
        if not fault.for_s:
            begun.begin()
            self._record(begun)
            return []
        self._active.append(begun)
        begun.begin()
        every_s = fault.for_s / begun.steps
        steps = [
            (n * every_s, f"next step of {fault.kind}", partial(self._step_fault, begun, n))
            for n in range(1, begun.steps)
        ]
        return [*steps, (fault.for_s, f"end of {fault.kind}", partial(self._end_fault, begun))]

    def _step_fault(self, active: Injection, number: int) -> Sequence[_Later]:
        active.step(number)
        return []

    def _end_fault(self, active: Injection) -> Sequence[_Later]:
        self._active.remove(active)
        active.end()
        self._record(active)
        return []

    def _record(self, ended: Injection) -> None:
        self.result.effects.append((ended.fault, ended.effect))
        self._log(f"effect of {ended.fault.kind}: {ended.effect}")

    # --- verification

    def _verify(self) -> None:
        lost = any(fault.kind is FaultKind.UNCLEAN_ELECTION and effect.count for fault, effect in self.result.effects)
        verification = Verification(self._context, self._places(), self._log, lost=bool(lost))
        verification.before = self.result.before
        try:
            verification.run()
        finally:
            self.result.findings += verification.findings
            self.result.records = verification.records
            self.result.catch_up_s = verification.catch_up_s
            self.result.after = verification.after

    def _clean(self) -> None:
        """Delete the round's topics: the disks are small."""
        source, target, topics = self._clusters.source, self._clusters.target, self._context.topics.counts
        own = [topic for name in self._stream.flows for topic in (topic_of(name), offset_topic_of(name))]
        for clean in (
            source.heal,
            target.heal,
            lambda: source.delete(*topics),
            lambda: target.delete(*(f"{PREFIX}{name}" for name in topics), *own),
        ):
            with contextlib.suppress(AssertionError, SandboxError, KafkaException, TimeoutError):
                clean()
        for side in (source, target):
            # The proxy keeps something of every request.
            side.proxy.seen.clear()
            side.proxy.opened.clear()
            side.proxy.injected.clear()
