"""What the report of a flow says of how its scheduled run has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.spark.driver import batch_job
from mirror.spark.driver.batch_job import Interrupted
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.ledger.results import FlowReport

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize("interrupt", [Interrupted(15), KeyboardInterrupt()])
def test_a_run_that_a_signal_or_the_user_of_a_notebook_interrupts_is_unfinished(
    tmp_path: Path, interrupt: BaseException
) -> None:
    def run(_: object) -> None:
        raise interrupt

    written: list[Outcome] = []

    def write(reports: Sequence[FlowReport]) -> None:
        written.extend(report.outcome for report in reports)

    report = FlowReport("f", datetime.now(UTC), run="r")
    flow_run, summary = cast("Any", SimpleNamespace(run=run)), cast("Any", SimpleNamespace(write=write))
    with pytest.raises(type(interrupt)):
        batch_job._run_flow(flow_run, [report], Consoles(), summary, JobOptions(config=tmp_path, report_dir=tmp_path))
    assert report.ended is not None
    assert written == [Outcome.UNFINISHED, Outcome.UNFINISHED]
