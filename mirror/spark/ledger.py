"""The ledger: how the source's planner, the sink's commit and the driver's script tell each other what happened.

They are three processes that share no memory, but a file system (planner and commit run on the driver's host). What
is in it only informs: the truth about progress is on the target. Each file appears at once and whole, or not at all.

::

    <report dir>/ledger/<flow>/<run>/plan.json       by the source: ranges and settled results
                                     error.json      by the source: why it could not plan
                                     results.jsonl   by the sink: one line per range and attempt
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.spark.plan import Plan, plain, result_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.ranges import RangeResult

KEPT_RUNS: Final = 10
"""How many runs of a flow the ledger remembers; a flow run each minute must not fill the disk."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of one task did to one range. ``traceback`` is that of an error nobody foresaw, or None."""

    task: int
    attempt: int
    result: RangeResult
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class PlanningError:
    """Why planning failed: ``line`` for the user, ``traceback`` for ``--debug``."""

    line: str
    traceback: str


class Ledger:
    """One run of one flow in the ledger; ``path`` is its folder, made when needed."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @classmethod
    def open(cls, report_dir: Path, flow: str, run: str) -> Ledger:
        """A new run's ledger; ``run`` sorts by time. All but the last :data:`KEPT_RUNS` runs of the flow are removed.

        Raises OSError where the folder cannot be made.
        """
        folder = report_dir.absolute() / "ledger" / flow
        path = folder / run
        path.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.iterdir())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        return cls(path)

    def write_plan(self, plan: Plan) -> None:
        """Record the plan, in place of an earlier one of this run."""
        write_atomically(self.path / "plan.json", json.dumps(plan.to_json()))

    def plan(self) -> Plan | None:
        """The plan, or None while there is none."""
        text = _read(self.path / "plan.json")
        return Plan.from_json(json.loads(text)) if text else None

    def write_error(self, error: PlanningError) -> None:
        """Record why planning failed."""
        write_atomically(self.path / "error.json", json.dumps(asdict(error)))

    def error(self) -> PlanningError | None:
        """Why planning failed, or None where it did not."""
        text = _read(self.path / "error.json")
        return PlanningError(**json.loads(text)) if text else None

    def write_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Record the results of the run's tasks, one line per range and attempt."""
        lines = "".join(
            json.dumps(
                {"task": each.task, "attempt": each.attempt, "result": plain(each.result), "traceback": each.traceback}
            )
            + "\n"
            for each in attempts
        )
        write_atomically(self.path / "results.jsonl", lines)

    def attempts(self) -> list[Attempt]:
        """All attempts on record; none where the sink never got to commit or abort."""
        rows = [json.loads(line) for line in (_read(self.path / "results.jsonl") or "").splitlines()]
        return [Attempt(**{**row, "result": result_from_json(row["result"])}) for row in rows]


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 so that a reader sees the old file or the whole new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's 0600 would keep a report from the people it is written for.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
