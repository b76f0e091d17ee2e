"""The ledger: how the source's planner, the sink's commit and the driver's script tell each other what happened.

They are three processes that share no memory, but a file system (planner and commit run on the driver's host). What
is in it only informs: the truth about progress is on the target. Each file appears at once and whole, or not at all.

::

    <report dir>/ledger/<flow>/<run>/plan-<epoch>.json        by the source: ranges and settled results
                                     results-<epoch>.parquet  by the sink: one row per range and attempt
                                     told-<epoch>.json        by the sink: what its tasks measured
                                     error.json               by the source: why it cannot plan; gone once it can
                                     idle.json                by a stream's source: its last plan, if without tasks
                                     targets.json             by the script: which target topics are ready, or why not
                                     overhead.json            by the script: what of a run's time was not copying
                                     config.socket            by a stream's source: where its configuration is asked for
                                     said.jsonl               by a stream's source: lines for people

A scheduled run is one epoch, 0. A stream's epochs count from 1.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError
from mirror.spark.ledger.atomic_write import TARGETS_FILE, write_atomically
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.live_config_store import remove_socket
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.ledger.parquet import from_parquet, results_file, task_reports_file, write_results
from mirror.spark.ledger.plan import Plan
from mirror.telemetry.task_report import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_RUNS: Final = 10
"""How many runs of a flow the ledger remembers; a flow run each minute must not fill the disk."""
MAX_EPOCHS: Final = 200
"""How many epochs of a stream it remembers: at three minutes each, those of ten hours."""
_SAID: Final = "said.jsonl"
_IDLE: Final = "idle.json"
_OVERHEAD: Final = "overhead.json"
_PROBE: Final = "probe"
_PROBE_BYTES: Final = 64 * 1024
"""About what a small run writes."""


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
        """A new run's ledger; ``run`` sorts by time. All but the last :data:`MAX_RUNS` runs of the flow are removed.

        Raises FlowError where it cannot be written: a run could not be planned then.
        """
        folder = report_dir.absolute() / "ledger" / flow
        path = folder / run
        cls(path).check_writable()
        for each in folder.iterdir():
            remove_socket(each)  # of a stream that was killed
        for left in folder.glob("*/config.toml"):
            left.unlink(missing_ok=True)  # of an earlier version's stream; it may hold secrets
        for old in sorted(folder.iterdir())[:-MAX_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        return cls(path)

    def check_writable(self) -> None:
        """Raises FlowError where nothing can be written: full, read-only, or not this user's."""
        try:
            write_atomically(self.path / _PROBE, bytes(_PROBE_BYTES))
            (self.path / _PROBE).unlink()
        except OSError as error:
            why = error.strerror or str(error)
            raise FlowError(
                f"the ledger {self.path} cannot be written: {why}; without it nothing can be planned, and what came of"
                " a run is not known: mend that, or choose another folder by --report-dir"
            ) from error

    @classmethod
    def runs(cls, report_dir: Path, flow: str) -> list[Ledger]:
        """Those of the flow that are remembered, the newest first."""
        folder = report_dir.absolute() / "ledger" / flow
        return [cls(path) for path in sorted(folder.iterdir(), reverse=True)] if folder.is_dir() else []

    def previous_run(self) -> Ledger | None:
        """The run before this one, if it is remembered."""
        if not self.path.parent.is_dir():  # the first plan makes it, for a query of somebody's own
            return None
        older = [path for path in self.path.parent.iterdir() if path.name < self.path.name]
        return Ledger(max(older)) if older else None

    def write_plan(self, plan: Plan) -> None:
        """Record the plan of its epoch, in place of an earlier one, and forget epochs of long ago."""
        write_atomically(self._plan(plan.epoch), json.dumps(plan.to_json()).encode())
        for name in ("error.json", _IDLE):
            (self.path / name).unlink(missing_ok=True)
        old = plan.epoch - MAX_EPOCHS
        for path in (self._plan(old), self._results(old), task_reports_file(self.path, old)):
            path.unlink(missing_ok=True)

    def plan(self, epoch: int = 0) -> Plan | None:
        """The plan of ``epoch``, or None while there is none."""
        text = _read(self._plan(epoch))
        return Plan.from_json(json.loads(text)) if text else None

    def write_idle_plan(self, plan: Plan) -> None:
        """Record a stream's plan that has no tasks: its epoch does not begin, and has no results."""
        write_atomically(self.path / _IDLE, json.dumps(plan.to_json()).encode())

    def idle_plan(self) -> Plan | None:
        """The plan that has no tasks, where that is the last one."""
        text = _read(self.path / _IDLE)
        return Plan.from_json(json.loads(text)) if text else None

    def idle_plan_ns(self) -> int | None:
        """When that plan was recorded, in ns since 1970; None where there is none."""
        try:
            return (self.path / _IDLE).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def write_targets(self, targets: TargetTopics) -> None:
        """Record what the last preparation of the target's topics came to."""
        write_atomically(self.path / TARGETS_FILE, json.dumps(targets.to_json()).encode())

    def targets(self) -> TargetTopics | None:
        """What it came to; None before the first."""
        text = _read(self.path / TARGETS_FILE)
        return TargetTopics.from_json(json.loads(text)) if text else None

    def planned_ms(self, epoch: int = 0) -> int:
        """When the plan of ``epoch`` was made, in ms since 1970. Raises OSError."""
        return int(self._plan(epoch).stat().st_mtime * 1000)

    def last_planned_epoch(self) -> int | None:
        """The last epoch that was planned; None before the first."""
        return _last(self.path.glob("plan-*.json"))

    def last_completed_epoch(self) -> int | None:
        """The last epoch that has results; None before the first."""
        return _last(self.path.glob("results-*.parquet"))

    def write_error(self, error: PlanningError) -> None:
        """Record why planning failed."""
        write_atomically(self.path / "error.json", json.dumps(asdict(error)).encode())

    def error(self) -> PlanningError | None:
        """Why planning failed the last time, or None where it did not."""
        text = _read(self.path / "error.json")
        return PlanningError(**json.loads(text)) if text else None

    def write_attempts(self, attempts: Iterable[Attempt], epoch: int = 0) -> None:
        """Record the results of an epoch's tasks, one row per range and attempt."""
        write_results(self.path, attempts, epoch)

    def attempts(self, epoch: int = 0) -> list[Attempt]:
        """All attempts on record; none where the sink never got to commit or abort."""
        path = self._results(epoch)
        return from_parquet(path.read_bytes()) if path.exists() else []

    def task_reports(self, epoch: int = 0) -> list[TaskReport]:
        """What the tasks of an epoch told of themselves; nothing where that cannot be read."""
        text = _read(task_reports_file(self.path, epoch))
        return [TaskReport.from_json(one) for one in json.loads(text)] if text else []

    def completed_ms(self, epoch: int = 0) -> int:
        """When the results of ``epoch`` were written, in ms since 1970. Raises OSError."""
        return int(self._results(epoch).stat().st_mtime * 1000)

    def write_overhead(self, seconds: float) -> None:
        """Record what of a scheduled run's time was not copying: Spark's start, planning, its end. Best effort."""
        with contextlib.suppress(OSError):
            write_atomically(self.path / _OVERHEAD, json.dumps({"seconds": round(seconds, 3)}).encode())

    def overhead(self) -> float | None:
        """That time in seconds; None where it is not known. Raises ValueError, TypeError or KeyError for nonsense."""
        text = _read(self.path / _OVERHEAD)
        return float(json.loads(text)["seconds"]) if text else None

    def add_message(self, line: str) -> None:
        """A line for people, to be told by the driver's script."""
        with (self.path / _SAID).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def messages(self, after: int = 0) -> list[str]:
        """All such lines but for the first ``after``."""
        # The last one may be half written.
        lines = (_read(self.path / _SAID) or "").splitlines(keepends=True)
        return [json.loads(line) for line in lines[after:] if line.endswith("\n")]

    def _plan(self, epoch: int) -> Path:
        return self.path / f"plan-{epoch:08}.json"

    def _results(self, epoch: int) -> Path:
        return results_file(self.path, epoch)


def _last(paths: Iterable[Path]) -> int | None:
    return max((int(path.stem.rpartition("-")[2]) for path in paths), default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
