"""Plans one scheduled run: reads both clusters, and writes the plan, or the error, into the ledger."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.task_spec import tasks_of
from mirror.spark.flow_admins import open_admins
from mirror.spark.ledger.ledger import Ledger, PlanningError
from mirror.spark.planning.history import read_history
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.datasource.task_spec import CopyTask
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.status_table import StatusTable


def plan_run(options: FlowOptions, status: StatusTable | None = None) -> list[CopyTask]:
    """Plan once, and return the tasks. Writes an error into the ledger, and raises it.

    ``status`` is what the flow's earlier runs have reported; None: the ledger says it.
    """
    ledger = Ledger(options.ledger)
    clock = SystemClock()
    began_ms = clock.now()
    try:
        plan = _plan(options, status)
    except Exception as error:
        ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
        raise
    plan = replace(plan, took_ms=clock.now() - began_ms)
    ledger.write_plan(plan)
    return tasks_of(plan, run=options.run, trace=str(epoch_id(plan.flow, options.ledger.name, plan.epoch)))


def _plan(options: FlowOptions, status: StatusTable | None) -> Plan:
    config, flow = options.load()
    with open_admins(config, flow) as (source, target):
        request = PlanRequest(
            flow=flow,
            now_ms=SystemClock().unix_ms(),
            parallelism=options.parallelism,
            history=read_history(flow, options.ledger.parent, options.ledger.name, status),
            targets=Ledger(options.ledger).targets(),
            registry=deciding_registry(config, flow),
        )
        return make_plan(request, source, target)
