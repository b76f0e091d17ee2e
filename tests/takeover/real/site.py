"""Real MirrorMaker 2 between two clusters, records that keep coming, and the flow that takes its topics over."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.client import EARLIEST, LATEST, Admin, TopicPartition
from mirror.cluster.types import TransactionDescription
from mirror.config.load import load
from mirror.observation import Side
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.process import Process
from mirror.spark.preflight import flow_topics
from tests.benchmarks.mirrormaker import mirrormaker, properties
from tests.copying.pair import End
from tests.e2e.connect_worker import HEAP, START_S
from tests.polling import eventually
from tests.takeover.real.comparison import Comparison, compared

IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
FLUSH_MS: Final = 2_000
"""``offset.flush.interval.ms``: a killed MirrorMaker 2 copies about so much once more."""
SESSION_MS: Final = 6_000
"""The shortest ``session.timeout.ms`` that brokers allow by default."""
TASKS: Final = 2
TRANSACTION_MS: Final = 10_000
UNMATCHED: Final = "--unmatched-from-start"
_LEFT_OUT: Final = 3
"""The exit status of a takeover that has left something out."""
_COMPACTED: Final = {"cleanup_policy": "compact", "segment_ms": 1000, "min_cleanable_dirty_ratio": 0.01}
"""Only segments that are closed are compacted."""


class Log(NamedTuple):
    """One partition of a topic, by its name on the source."""

    topic: str
    partition: int


class MirrorMakerSite:
    """MirrorMaker 2 copies three topics: ``plain`` (two partitions), ``compact`` and ``transactions`` (one each)."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        folder: Path,
        unique: Callable[[str], str],
        *,
        exactly_once: bool = False,
        identity: bool = False,
        transactions: bool = False,
        partitions: int = 2,
        session_ms: int = SESSION_MS,
    ) -> None:
        """``transactions``: the flow is exactly once by transactions only. ``partitions``: those of the plain topic.

        ``session_ms``: for so long a worker that was killed holds up the next one, and the takeover.
        """
        self.folder: Final = folder
        self.source, self.target = End(source.bootstrap_servers), End(target.bootstrap_servers)
        self.alias, self.other = unique("a").replace("-", ""), unique("b").replace("-", "")
        self.flow: Final = f"{self.alias}-{self.other}"
        self.exactly_once: Final = exactly_once
        self.identity: Final = identity
        self._exactly_once_by: Final = "transactions" if transactions else "auto"
        prefix = unique("t")
        self.topics: Final = {f"{prefix}-plain": partitions, f"{prefix}-compact": 1, f"{prefix}-transactions": 1}
        self.plain, self.compact, self.transactions = self.topics
        self.logs: Final = [Log(topic, number) for topic, count in self.topics.items() for number in range(count)]
        for topic, count in self.topics.items():
            self.source.create(topic, count, **(_COMPACTED if topic == self.compact else {}))
        self.settings: Final = self._settings(f"{prefix}-.*", session_ms)
        self.positions = f"mm2-offsets.{self.alias}.internal"
        """MirrorMaker 2's topic of positions."""
        self.tasks = f"{self.alias}-mm2-MirrorSourceConnector"
        """The transactional ids of its tasks begin so."""
        self.options: Final = list[str]()
        """Of each takeover."""
        self.lines: Final = list[str]()
        """Of the flow, besides its topics."""

    def _settings(self, topics: str, session_ms: int) -> dict[str, str]:
        names = {"a": self.alias, "b": self.other}
        found = {
            re.sub(r"^([ab])(->([ab]))?\.", lambda match: _renamed(match, names), key): value
            for key, value in properties(
                self.source.address, self.target.address, topics, exactly_once=self.exactly_once, tasks=TASKS
            ).items()
        }
        found |= {
            "clusters": f"{self.alias}, {self.other}",
            f"{self.other}->{self.alias}.emit.heartbeats.enabled": "false",
            f"{self.other}.offset.flush.interval.ms": str(FLUSH_MS),
            f"{self.alias}->{self.other}.sync.topic.acls.enabled": "false",
            f"{self.other}.session.timeout.ms": str(session_ms),
            f"{self.other}.heartbeat.interval.ms": str(session_ms // 6),
            f"{self.other}.scheduled.rebalance.max.delay.ms": "0",
            # The next one waits for the open transactions of one that was killed.
            f"{self.other}.producer.transaction.timeout.ms": str(TRANSACTION_MS),
        }
        return found | ({"replication.policy.class": IDENTITY} if self.identity else {})

    def target_topic(self, topic: str) -> str:
        return topic if self.identity else f"{self.alias}.{topic}"

    # --- MirrorMaker 2

    @contextmanager
    def mirrormaker(self) -> Iterator[Process]:
        """Running; it is stopped in order at the end, unless it was killed."""
        with mirrormaker(self.folder, self.settings, heap=HEAP) as process:
            yield process

    def await_copied(self, logs: Sequence[Log], records: int) -> None:
        """Wait until the target's partitions have grown by so many records in all."""
        before = self._ends(logs)

        def grown() -> bool:
            return self._ends(logs) - before >= records

        eventually(grown, within_s=START_S, what=f"{records} more records in the target", every_s=0.1)

    def _ends(self, logs: Sequence[Log]) -> int:
        return sum(self.target.end(self.target_topic(log.topic), log.partition) for log in logs)

    def stored(self) -> int:
        """How many positions MirrorMaker 2 has stored, earlier ones included."""
        return sum(self.target.end(self.positions, number) for number in range(self.target.partitions(self.positions)))

    def await_started(self) -> None:
        """Wait until MirrorMaker 2 has its topic of positions, without which there is nothing to be taken over."""
        eventually(
            lambda: self.positions in self.target.topics(), within_s=START_S, what="MirrorMaker 2's topics", every_s=0.1
        )

    def task_transactions(self) -> dict[str, TransactionDescription]:
        """Return its tasks' transactional ids, exactly once.

        A fence begins a new epoch without a transaction; one that has timed out leaves an aborted transaction.
        """
        ids = [f"{self.tasks}-{number}" for number in range(TASKS)]
        with Admin({"bootstrap.servers": self.target.address}) as admin:
            return {**admin.describe_transactions(ids, partial=True)}  # one that was killed early has none

    def await_caught_up(self) -> None:
        """Wait until the target has all records of the source. Nothing is to be written meanwhile."""

        def caught_up() -> bool:
            return not self.lacking()

        eventually(caught_up, within_s=START_S, what="a complete target", every_s=1.0)

    # --- the flow

    def configuration(self) -> Path:
        """Return the file of a flow that copies the same topics to the same names."""
        file = self.folder / "mirror.toml"
        names = ", ".join(f'"{topic}"' for topic in self.topics)
        naming = "identity" if self.identity else "prefix"
        file.write_text(
            f'[clusters.{self.alias}]\n"bootstrap.servers" = "{self.source.address}"\n'
            f'[clusters.{self.other}]\n"bootstrap.servers" = "{self.target.address}"\n'
            f'[flows.{self.flow}]\nsource = "{self.alias}"\ntarget = "{self.other}"\n'
            f'topics = [{names}]\nnaming = "{naming}"\nexactly-once-by = "{self._exactly_once_by}"\n'
            # The clusters have one broker each.
            "replication-factor = 1\n" + "".join(f"{line}\n" for line in self.lines),
            encoding="utf-8",
        )
        return file

    def takeover(self, *options: str) -> Any:
        """Run the command until nothing is left out, and return what it prints.

        It refuses while a killed worker is a member of its group still, and leaves out open transactions. If it says of
        the compacted topic alone that nothing of what was copied is left in the source, it is asked to copy the rest.
        """
        return self._until({0}, options)

    def dry_run(self) -> Any:
        """Run the command without changes until it does not refuse, and return what it prints."""
        return self._until({0, 3}, ["--dry-run"])

    def command(self, *options: str) -> list[str]:
        """Return the arguments of the command."""
        shown = ["--config", str(self.configuration()), "--flow", self.flow, "--observe", "1", "--json"]
        return ["takeover", *shown, *self.options, *options]

    def invoke(self, *options: str) -> Result:
        """Run the command once."""
        return CliRunner().invoke(app, self.command(*options), catch_exceptions=False)

    def _until(self, accepted: Collection[int], options: Sequence[str]) -> Any:
        results: list[Result] = []

        def done() -> bool:
            unmatched = [UNMATCHED] if results and self._has_no_copies_left(results[-1]) else []
            results.append(self.invoke(*options, *unmatched))
            return results[-1].exit_code in accepted

        try:
            eventually(done, within_s=START_S, what="a takeover", every_s=0.5)
        except AssertionError:
            raise AssertionError(results[-1].output) from None
        return json.loads(results[-1].stdout)

    def _has_no_copies_left(self, result: Result) -> bool:
        """Whether a takeover has left out the compacted partition alone, as its copies match nothing in the source."""
        if result.exit_code != _LEFT_OUT:
            return False
        left_out = [one for one in json.loads(result.stdout)["partitions"] if one["outcome"] == "unsettled"]
        return [one["topic"] for one in left_out] == [self.compact] and UNMATCHED in left_out[0]["reason"]

    def copy(self) -> None:
        """Copy all that the source has, exactly once, as a run of the flow does."""
        self._prepare()
        results = copy_ranges(
            self._ranges(),
            source_options={"bootstrap.servers": self.source.address},
            target_options={"bootstrap.servers": self.target.address},
            policy=CopyPolicy(exactly_once_by=self._exactly_once_by),
        )
        for result in results:
            assert result.outcome is Outcome.COMPLETE, result

    def _prepare(self) -> None:
        """Create what a run creates before it copies: MirrorMaker 2 may have been killed before it did."""
        (flow,) = load(self.configuration()).select(self.flow)
        with Admin({"bootstrap.servers": self.target.address}) as admin:
            flow_topics.prepare(flow_topics.on_target(flow), Side("b", admin))
        for topic, count in self.topics.items():
            if self.target_topic(topic) not in self.target.topics():
                self.target.create(self.target_topic(topic), count, **(_COMPACTED if topic == self.compact else {}))

    def _ranges(self) -> list[Range]:
        with Admin({"bootstrap.servers": self.source.address}) as admin:
            topics = admin.describe_topics(self.topics)
            tps = [TopicPartition(*log) for log in self.logs]
            first = admin.list_offsets(dict.fromkeys(tps, EARLIEST))
            last = admin.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_committed")
            cluster_id = str(admin.describe_cluster().cluster_id)
        return [
            Range(
                flow=self.flow,
                topic=tp.topic,
                target_topic=self.target_topic(tp.topic),
                partition=tp.partition,
                start=first[tp].offset,
                end=last[tp].offset,
                source_cluster_id=cluster_id,
                topic_id=str(topics[tp.topic].topic_id),
                source_epoch=last[tp].leader_epoch,
            )
            for tp in tps
        ]

    # --- both logs

    def compared(self, by_mirrormaker: Mapping[Log, Sequence[range]]) -> dict[Log, Comparison]:
        """Compare all partitions but the compacted one.

        ``by_mirrormaker`` are the target's offsets that only MirrorMaker 2 has written.
        """
        found = {}
        for topic, count in self.topics.items():
            if topic == self.compact:
                continue
            target, source = self.target.logs(self.target_topic(topic), count), self.source.logs(topic, count)
            for number in range(count):
                log = Log(topic, number)
                found[log] = compared([record for _, record in source[number]], target[number], by_mirrormaker[log])
        return found

    def lacking(self) -> list[str]:
        """Return what the target lacks, as lines."""
        found = self.compared(dict.fromkeys(self.logs, ()))
        lines = [f"{log}: {one.missing.total()} missing" for log, one in found.items() if one.missing]
        return lines if self.last_values() else [*lines, f"{self.compact}: other last values"]

    def target_ends(self) -> dict[Log, int]:
        return {log: self.target.end(self.target_topic(log.topic), log.partition) for log in self.logs}

    def last_values(self) -> bool:
        """Whether both clusters have the same last value of each key of the compacted topic."""
        both = (self.source.records(self.compact), self.target.records(self.target_topic(self.compact)))
        theirs, ours = ({record.key: record.value for record in log} for log in both)
        return theirs == ours


def _renamed(match: re.Match[str], names: Mapping[str, str]) -> str:
    first, _, second = match.groups()
    return f"{names[first]}->{names[second]}." if second else f"{names[first]}."


def kill(process: Process) -> None:
    """Kill MirrorMaker 2 without any notice, and wait for its end."""
    process.send(signal.SIGKILL)
    eventually(lambda: not process.alive(), what="the end of a killed process")
