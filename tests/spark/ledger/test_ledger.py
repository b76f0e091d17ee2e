"""What the ledger of a run keeps."""

from __future__ import annotations

from pathlib import Path

from mirror.spark.ledger.ledger import MAX_EPOCHS, Ledger
from mirror.spark.ledger.plan import Plan


def test_the_ledger_keeps_only_the_last_epochs(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "1")
    assert (ledger.last_planned_epoch(), ledger.last_completed_epoch(), ledger.previous_run()) == (None, None, None)
    for epoch in (1, 2, MAX_EPOCHS + 1):
        plan = Plan(flow="f", tasks=[], results_without_task=[], epoch=epoch)
        ledger.write_plan(plan)
        ledger.write_attempts([], epoch)
    assert (ledger.last_planned_epoch(), ledger.last_completed_epoch()) == (MAX_EPOCHS + 1, MAX_EPOCHS + 1)
    assert ledger.plan(1) is None
    assert ledger.plan(2) is not None
    older = Ledger.open(tmp_path, "f", "2").previous_run()
    assert older is not None
    assert older.path == ledger.path
