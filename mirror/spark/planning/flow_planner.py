"""Plans the job of one run of one flow, and what is planned again while it follows its partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.ledger.initial_partitions import InitialPartitions
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.status_table import StatusTable
    from mirror.spark.ledger.topic_obstacles import TargetTopics
    from mirror.timing import Clock

_OFFSETS_TIMEOUT_MS: Final = 10_000
"""A followed partition whose leader does not return its offsets by then waits for the next plan; others go on."""


# Invariant: The cost of planning grows linearly with the partitions.
# Test: tests/spark/test_scale.py::test_10_000_partitions_are_planned_in_time_and_cost_no_quadratic_work
class FlowPlanner:
    """Plans for one run of one flow. For one thread at a time."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        initial: InitialPartitions,
        clock: Clock,
        *,
        parallelism: int,
        follows: bool,
        status: StatusTable,
    ) -> None:
        """``status`` is what the flow's runs have reported, and is kept up to date.

        With ``follows``, what is not among the ``initial`` partitions is copied from its first record.

        ``parallelism`` is the largest number of tasks. With ``follows`` ranges have no end.
        """
        self._flow: Final = flow
        self._clock: Final = clock
        self._parallelism: Final = parallelism
        self._follows: Final = follows
        self._status: Final = status
        self.is_initial: Final = initial.has
        self._withheld: OpenTransactions | None = None
        self._registry = deciding_registry(config, flow)

    def plan(self, sides: Sides, targets: TargetTopics, number: int) -> Plan:
        """Make the plan ``number`` with what is prepared on the target now.

        Raises FlowError if no topic matches, KafkaError if a cluster does not answer.
        """
        began_ms = self._clock.now()
        request = PlanRequest(
            flow=self._flow,
            now_ms=self._clock.unix_ms(),
            parallelism=self._parallelism,
            period=number,
            turns=self._status.turns,
            unhealthy=self._status.health,
            follow=self._follows,
            is_initial=self.is_initial if self._follows else None,
            call_timeout_ms=_OFFSETS_TIMEOUT_MS if self._follows else None,
            withheld=self._withheld,
            targets=targets,
            registry=self._registry,
        )
        plan = make_plan(request, sides)
        self._withheld = plan.withheld
        return replace(plan, took_ms=self._clock.now() - began_ms)
