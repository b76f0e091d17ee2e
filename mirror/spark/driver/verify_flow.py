"""Verifies one flow: reads both clusters, lets Spark compare, and keeps the proof."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.groups.summary import counted
from mirror.spark.clusters import open_sides
from mirror.spark.driver.flow_job import FlowJob, JobLabel
from mirror.spark.driver.verify_options import parse_position
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.verification.planning import VerifyPlan, VerifyRequest, make_plan
from mirror.spark.verification.verify_task import VerifyTask, verify_task
from mirror.verify.partition_results import name_other_partitions
from mirror.verify.proof import Link, Proof, proved_ranges, unproved_lines
from mirror.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.verify_options import VerifyOptions
    from mirror.spark.verification.verification_result import FlowVerification
    from mirror.verify.partition_results import PartitionResult, VerifyRange

_SHORT_BYTES: Final = 32 * 1024 * 1024
_SHORT_OFFSETS: Final = 200_000
"""What is compared within seconds: sizes are those of the log, whose records may be many times as large."""


class FlowVerifier:
    """Verifies the flows of one configuration, one after the other."""

    def __init__(
        self,
        config: MirrorConfig,
        options: VerifyOptions,
        proof: Proof | None,
        context: Callable[[], SparkContext],
        on_progress: Callable[[str], None],
    ) -> None:
        """``proof`` is what was proved before, of the only flow then.

        ``context`` is called only if there is something to compare: starting it takes seconds.
        """
        self._config: Final = config
        self._options: Final = options
        self._proof: Final = proof
        self._context: Final = context
        self._on_progress: Final = on_progress

    def verify(self, flow: FlowConfig, report: FlowVerification) -> None:
        """Compare what ``flow`` has copied, and fill ``report``. Raises MirrorError if nothing could be looked at."""
        options, proof = self._options, self._proof
        others = options.allow_foreign or flow.only_local
        request = VerifyRequest(
            flow=flow,
            position=parse_position(options.from_),
            proof=proof,
            checks=options.check is not None,
            has_others=others,
        )
        self._on_progress(f"flow {flow.name}: reading what is copied")
        with open_sides(self._config, flow) as sides:
            plan = make_plan(request, sides)
        report.source_cluster_id, report.target_cluster_id = plan.source_cluster_id, plan.target_cluster_id
        results = [*plan.results, *(self._compare(flow, plan) if plan.ranges else [])]
        # Parts of one partition, of a proof that is checked, keep their order.
        report.results = sorted(results, key=lambda one: (one.topic, one.partition))
        name_other_partitions(report.results)
        if proof is not None:
            report.proof_hash = self._keep(flow, proof, report) if options.proof is not None else proof.last_hash

    def _compare(self, flow: FlowConfig, plan: VerifyPlan) -> list[PartitionResult]:
        if self._proof is not None and self._proof.links and _is_short(plan):
            # Such as the tail of a switch, for which producers wait: Spark's start would take longer.
            self._on_progress(f"flow {flow.name}: comparing {counted(len(plan.ranges), 'partition')} without Spark")
            return verify_task(self._task(flow, plan.ranges))
        context = self._context()
        tasks = [self._task(flow, ranges) for ranges in plan.tasks(context.defaultParallelism)]
        label = JobLabel.of(flow.name, f"mirror verify {flow.name}: {flow.source} and {flow.target}", "verify")
        count = sum(len(task.ranges) for task in tasks)
        self._on_progress(f"flow {flow.name}: comparing {counted(count, 'partition')} in {counted(len(tasks), 'task')}")
        return [result for results in FlowJob(context, tasks, verify_task, label).run() for result in results]

    def _task(self, flow: FlowConfig, ranges: list[VerifyRange]) -> VerifyTask:
        options = self._options
        return VerifyTask(
            config=options.config.absolute(),
            secrets_dir=options.secrets_dir.absolute() if options.secrets_dir else None,
            flow=flow.name,
            ranges=ranges,
            foreign_allowed=options.allow_foreign,
            excerpts=options.excerpts,
            hashes=options.proof is not None or options.check is not None,
        )

    def _keep(self, flow: FlowConfig, proof: Proof, report: FlowVerification) -> str:
        """Write what was proved behind the ``proof``, and return its last hash."""
        ranges, unproved = proved_ranges(report.results), unproved_lines(report.results)
        if not ranges and not unproved and proof.links:
            return proof.last_hash
        link = Link(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            version=VERSION,
            flow=flow.name,
            source_cluster_id=report.source_cluster_id,
            target_cluster_id=report.target_cluster_id,
            settings={
                "delivery": flow.delivery,
                "transform": flow.transform,
                "test-copy": flow.test_copy.text(),
                "headers": ", ".join(flow.headers),
                "origin": flow.origin,
            },
            ranges=ranges,
            unproved=unproved,
        )
        extended = proof.extended(link)
        if self._options.proof is not None:
            write_atomically(self._options.proof, extended.to_json().encode())
        return extended.last_hash


def _is_short(plan: VerifyPlan) -> bool:
    return plan.size <= _SHORT_BYTES and plan.offsets <= _SHORT_OFFSETS
