"""Two clusters whose topics are written by confluent-kafka, and verified as `mirror verify` does, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Producer as Confluent

from mirror.client import Consumer, TopicPartition
from mirror.config.load import load
from mirror.config.positions import Position
from mirror.relay.progress.committed import Beginning, Progress, group_of, to_offset
from mirror.relay.progress.target_log import TargetMark
from mirror.sandbox.cluster import Cluster
from mirror.spark.clusters import open_sides
from mirror.spark.verification.planning import VerifyPlan, VerifyRequest, make_plan
from mirror.spark.verification.verify_task import VerifyTask, verify_ranges
from mirror.verify.partition_results import PartitionResult
from mirror.verify.proof import Proof
from tests.copying.pair import TwoClusters
from tests.relay.batches.logs_by_hand import Made
from tests.verify.logs import by_tens

FLOW: Final = "audited"


class VerifiedPair(TwoClusters):
    """Two clusters, and the verification of one topic between them."""

    def __init__(self, source: Cluster, target: Cluster, unique: str, folder: Path) -> None:
        super().__init__(source, target, lambda prefix: f"{prefix}-{unique}", flow=FLOW)
        self._config: Final = folder / "mirror.toml"

    def configure_flow(self, topic: str, *lines: str) -> None:
        """Write the configuration of the flow that copies ``topic`` under its own name."""
        text = [
            f'[clusters.a]\n"bootstrap.servers" = "{self.source.address}"',
            f'[clusters.b]\n"bootstrap.servers" = "{self.target.address}"',
            f'[flows.{FLOW}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\nnaming = "identity"',
            *lines,
        ]
        self._config.write_text("\n".join(text) + "\n", encoding="utf-8")

    def plan(self, *, position: Position | None = None, proof: Proof | None = None, checks: bool = False) -> VerifyPlan:
        config = load(self._config)
        (flow,) = config.select(FLOW)
        request = VerifyRequest(flow=flow, position=position, proof=proof, checks=checks)
        with open_sides(config, flow) as sides:
            return make_plan(request, sides)

    def verify(
        self, *, position: Position | None = None, proof: Proof | None = None, checks: bool = False
    ) -> list[PartitionResult]:
        """The results of the topic's partitions, in order."""
        plan = self.plan(position=position, proof=proof, checks=checks)
        config = load(self._config)
        (flow,) = config.select(FLOW)
        results = list(plan.results)
        for ranges in plan.tasks(2):
            task = VerifyTask(config=self._config, secrets_dir=None, flow=FLOW, ranges=ranges, hashes=True)
            results += verify_ranges(config, flow, task)
        return sorted(results, key=lambda result: result.partition)

    def commit_progress(self, topic: str, ends: Iterable[int]) -> None:
        """Commit for each partition of ``topic`` that the source is copied from offset 0 up to its end."""
        (range_, *_) = self.ranges(topic)
        for partition, end in enumerate(ends):
            tp = TopicPartition(topic, partition)
            progress = Progress(
                offset=end,
                leader_epoch=None,
                source_cluster_id=self.cluster_id,
                topic_id=range_.topic_id,
                target=TargetMark(topic_id="", end=0),
                beginning=Beginning(0, 0),
            )
            with Consumer({"bootstrap.servers": self.target.address, "group.id": group_of(FLOW, tp)}) as consumer:
                consumer.commit_sync({tp: to_offset(progress)})


def write_batches(address: str, topic: str, records: Sequence[Made], partition: int, *, codec: str = "lz4") -> None:
    """Write ``records`` with confluent-kafka, in batches as of the pure tests."""
    producer = Confluent(
        {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 10_000, "enable.idempotence": True}
    )
    failures: list[str] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for batch in by_tens(records):
        for key, value, headers, time_ms in batch:
            # librdkafka takes 0 for "now": such times are no part of these tests.
            producer.produce(topic, value, key, partition, timestamp=time_ms, headers=list(headers), on_delivery=note)
        assert producer.flush(60) == 0
    assert not failures, failures[0]
