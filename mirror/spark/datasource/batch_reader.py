"""The batch reader of ``mirror-ranges``: each read creates one plan.

It has a module of its own, so that Spark's other short-lived processes do not import the planning: they take 0.3 s
of CPU instead of 1.2 s.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.rows import TaskRows, partitions_of
from mirror.spark.flow_admins import open_admins
from mirror.spark.ledger.ledger import Ledger, PlanningError
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.history import read_history
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.spark.datasource.options import FlowOptions


class RangesReader(TaskRows, DataSourceReader):
    """Plans once, in :meth:`partitions`, and writes the plan or the error into the ledger."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per task. Runs on the driver's host. Writes an error into the ledger and raises it."""
        ledger = Ledger(self.options.ledger)
        clock = SystemClock()
        began_ms = clock.now()
        try:
            plan = self._plan()
        except Exception as error:
            ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
            raise
        plan = replace(plan, took_ms=clock.now() - began_ms)
        ledger.write_plan(plan)
        trace = str(epoch_id(plan.flow, self.options.ledger.name, plan.epoch))
        return partitions_of(plan, run=self.options.run, trace=trace)

    def _plan(self) -> Plan:
        config, flow = self.options.load()
        with open_admins(config, flow) as (source, target):
            request = PlanRequest(
                flow=flow,
                now_ms=SystemClock().unix_ms(),
                parallelism=self.options.parallelism,
                history=read_history(flow, self.options.ledger.parent, self.options.ledger.name),
                targets=Ledger(self.options.ledger).targets(),
                registry=deciding_registry(config, flow),
            )
            return make_plan(request, source, target)
