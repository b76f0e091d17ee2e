"""The ledger: files by which the source's planner, the sink's commit and the driver's script exchange their results.

A stream goes on while it cannot be written, and records nothing then; a scheduled run fails. These three are
processes that share no memory, but a file system (planner and commit run on the driver's host). The
ledger is for information only: the committed progress is on the target. Every file is written atomically.

::

    <report dir>/ledger/<flow>/<run>/
        plan-<epoch>.json        by the source: ranges, and results without a task
        results-<epoch>.parquet  by the sink: one row per range and attempt
        task-reports-<epoch>.json  by the sink: the measurements of its tasks
        error.json               by the source: why planning failed; removed once it succeeds
        idle.json                by a stream's source: its last plan, if that has no tasks
        targets.json             by the script: which target topics are prepared, and why others are not
        targets-first.json       by the script: the same, when the run began
        groups.json              by the script: the consumer groups after the last round
        sync.json                by the script: what else is in step, and what is not
        overhead.json            by the script: how long a run did not copy
        rate.json                by the script: how much a stream has caught up with, and in how long
        config.socket            by a stream's source: the path of the socket that serves its configuration
        messages.jsonl           by a stream's source: messages for the user

A scheduled run is one epoch, 0. A stream's epochs count from 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.alignment.sync_state import SyncState
from mirror.errors import FlowError
from mirror.groups.summary import GroupsSummary
from mirror.local_users import REPORT_READERS, open_own, own_folder, readers_of
from mirror.spark.ledger.atomic_write import FIRST_TARGETS_FILE, TARGETS_FILE, write_atomically
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.live_config_store import remove_socket
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.ledger.parquet import from_parquet, results_file, task_reports_file, write_results
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.retention import bound_folder
from mirror.telemetry.task_report import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_RUNS: Final = 10
"""How many runs of a flow the ledger keeps; a flow that runs every minute must not fill the disk."""
MAX_EPOCHS: Final = 200
"""How many epochs of a stream it keeps: ten hours of three-minute epochs."""
_GROUPS: Final = "groups.json"
_SYNC: Final = "sync.json"
_MESSAGES: Final = "messages.jsonl"
_IDLE: Final = "idle.json"
_OVERHEAD: Final = "overhead.json"
_RATE: Final = "rate.json"
_PROBE: Final = "probe"
_PROBE_BYTES: Final = 64 * 1024
"""Roughly as much as a small run writes."""


@dataclass(frozen=True, slots=True)
class PlanningError:
    """Why planning failed."""

    line: str
    """For the user."""
    traceback: str
    """For ``--debug``."""


AWAITS_CLUSTER: Final = " cannot be planned before the cluster answers: "
"""Before the error in the message about an epoch that cannot be planned because a cluster is away."""
REREAD: Final = "its configuration was read again: "
"""The beginning of the message about an edit of the file."""
PLANNED_AGAIN: Final = " failed attempts"
"""The end of the message about an epoch that was planned at last."""


class Ledger:
    """The ledger of one run of one flow; ``path`` is its folder, which is created when needed."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @classmethod
    def open(cls, report_dir: Path, flow: str, run: str) -> Ledger:
        """Create a new run's ledger; remove all but the last :data:`MAX_RUNS` runs of the flow. ``run`` sorts by time.

        Raises FlowError if the ledger cannot be written, since the run could not be planned.
        """
        ledgers = report_dir.absolute() / "ledger"
        folder = ledgers / flow
        path = folder / run
        with _writable(ledgers):
            own_folder(report_dir, others=REPORT_READERS)
            own_folder(ledgers, mode=readers_of(report_dir))
        cls(path).check_writable()
        with _writable(folder):
            for older in folder.iterdir():
                remove_socket(older)  # A stream that was killed leaves its socket.
            for copy in folder.glob("*/config.toml"):
                copy.unlink(missing_ok=True)  # A stream of an earlier version left it; it may hold secrets.
            for old in sorted(folder.iterdir())[:-MAX_RUNS]:
                shutil.rmtree(old, ignore_errors=True)
        bound_folder(report_dir)
        return cls(path)

    def check_writable(self) -> None:
        """Raise FlowError if nothing can be written: the disk is full or read-only, or permission is missing."""
        with _writable(self.path):
            self._probe()

    def why_not_writable(self) -> str | None:
        """Try to write as much as a small run does, and return why that fails; None if it does not."""
        try:
            self._probe()
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _probe(self) -> None:
        write_atomically(self.path / _PROBE, bytes(_PROBE_BYTES))
        (self.path / _PROBE).unlink()

    @classmethod
    def runs(cls, report_dir: Path, flow: str) -> list[Ledger]:
        """Return the ledgers of the flow's runs, the newest first."""
        folder = report_dir.absolute() / "ledger" / flow
        return [cls(path) for path in sorted(folder.iterdir(), reverse=True)] if folder.is_dir() else []

    def previous_run(self) -> Ledger | None:
        """Return the ledger of the run before this one, or None if there is none."""
        if not self.path.parent.is_dir():  # In a user's own query, the first plan creates the folder.
            return None
        older = [path for path in self.path.parent.iterdir() if path.name < self.path.name]
        return Ledger(max(older)) if older else None

    def write_plan(self, plan: Plan) -> None:
        """Record the plan of its epoch in place of an earlier one, and remove epochs beyond :data:`MAX_EPOCHS`."""
        own_folder(self.path)  # of a user's own query nothing may have made it yet
        write_atomically(self._plan(plan.epoch), json.dumps(plan.to_json()).encode())
        for name in ("error.json", _IDLE):
            (self.path / name).unlink(missing_ok=True)
        old = plan.epoch - MAX_EPOCHS
        for path in (self._plan(old), self._results(old), task_reports_file(self.path, old)):
            path.unlink(missing_ok=True)

    def plan(self, epoch: int = 0) -> Plan | None:
        """Return the plan of ``epoch``, or None if there is none yet."""
        text = _read(self._plan(epoch))
        return Plan.from_json(json.loads(text)) if text else None

    def write_idle_plan(self, plan: Plan) -> None:
        """Record a stream's plan that has no tasks: its epoch does not begin and has no results."""
        write_atomically(self.path / _IDLE, json.dumps(plan.to_json()).encode())

    def idle_plan(self) -> Plan | None:
        """Return the plan that has no tasks, if that is the last plan."""
        text = _read(self.path / _IDLE)
        return Plan.from_json(json.loads(text)) if text else None

    def idle_plan_ns(self) -> int | None:
        """Return when that plan was recorded, in ns since 1970; None if there is none."""
        try:
            return (self.path / _IDLE).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def write_targets(self, targets: TargetTopics) -> None:
        """Record the outcome of the last preparation of the target's topics, and of the first one for good."""
        content = json.dumps(targets.to_json()).encode()
        if not (self.path / FIRST_TARGETS_FILE).exists():
            write_atomically(self.path / FIRST_TARGETS_FILE, content)
        write_atomically(self.path / TARGETS_FILE, content)

    def targets(self) -> TargetTopics | None:
        """Return the outcome of the last preparation of the target's topics; None before the first."""
        return self._targets(TARGETS_FILE)

    def first_targets(self) -> TargetTopics | None:
        """Return the outcome of the preparation with which the run began; None before it."""
        return self._targets(FIRST_TARGETS_FILE)

    def _targets(self, name: str) -> TargetTopics | None:
        text = _read(self.path / name)
        return TargetTopics.from_json(json.loads(text)) if text else None

    def write_groups(self, groups: GroupsSummary) -> None:
        """Record the consumer groups after the last round. Raises OSError."""
        write_atomically(self.path / _GROUPS, json.dumps(groups.to_json()).encode())

    def groups(self) -> GroupsSummary | None:
        """Return the consumer groups after the last round; None if there was none, or another version recorded it."""
        try:
            text = _read(self.path / _GROUPS)
            return GroupsSummary.from_json(json.loads(text)) if text else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write_sync(self, state: SyncState) -> None:
        """Record what is in step after the last rounds. Raises OSError."""
        write_atomically(self.path / _SYNC, json.dumps(state.to_json()).encode())

    def sync(self) -> SyncState | None:
        """Return what is in step after the last rounds; None if there was none, or another version recorded it."""
        try:
            text = _read(self.path / _SYNC)
            return SyncState.from_json(json.loads(text)) if text else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def planned_ms(self, epoch: int = 0) -> int:
        """Return when the plan of ``epoch`` was recorded, in ms since 1970. Raises OSError."""
        return int(self._plan(epoch).stat().st_mtime * 1000)

    def last_planned_epoch(self) -> int | None:
        """Return the last epoch that has a plan; None before the first."""
        return _last(self.path.glob("plan-*.json"))

    def last_completed_epoch(self) -> int | None:
        """Return the last epoch that has results; None before the first."""
        return _last(self.path.glob("results-*.parquet"))

    def write_error(self, error: PlanningError) -> None:
        """Record why planning failed."""
        write_atomically(self.path / "error.json", json.dumps(asdict(error)).encode())

    def error(self) -> PlanningError | None:
        """Return why planning failed the last time, or None if it succeeded."""
        text = _read(self.path / "error.json")
        return PlanningError(**json.loads(text)) if text else None

    def write_attempts(self, attempts: Iterable[Attempt], epoch: int = 0) -> None:
        """Record the results of an epoch's tasks, one row per range and attempt."""
        write_results(self.path, attempts, epoch)

    def has_results(self, epoch: int = 0) -> bool:
        """Return whether the results of ``epoch`` are recorded: without room for them, a stream goes on."""
        return self._results(epoch).exists()

    def attempts(self, epoch: int = 0) -> list[Attempt]:
        """Return all recorded attempts; none if the sink neither committed nor aborted."""
        path = self._results(epoch)
        return from_parquet(path.read_bytes()) if path.exists() else []

    def task_reports(self, epoch: int = 0) -> list[TaskReport]:
        """Return the reports of an epoch's tasks; none if there is no file."""
        text = _read(task_reports_file(self.path, epoch))
        return [TaskReport.from_json(report) for report in json.loads(text)] if text else []

    def completed_ms(self, epoch: int = 0) -> int:
        """Return when the results of ``epoch`` were written, in ms since 1970. Raises OSError."""
        return int(self._results(epoch).stat().st_mtime * 1000)

    def write_overhead(self, seconds: float) -> None:
        """Record how long a scheduled run did not copy (Spark's start, planning, its end). Ignores OSError."""
        with contextlib.suppress(OSError):
            write_atomically(self.path / _OVERHEAD, json.dumps({"seconds": round(seconds, 3)}).encode())

    def overhead(self) -> float | None:
        """Return that time in seconds; None if there is no file. Raises ValueError, TypeError or KeyError."""
        text = _read(self.path / _OVERHEAD)
        return float(json.loads(text)["seconds"]) if text else None

    def add_rate(self, size: float, seconds: float) -> None:
        """Add what a stream has caught up with in an epoch: bytes and seconds. Ignores OSError.

        Earlier ones count half as much with each: the files of their epochs are deleted, and a cluster changes.
        """
        earlier = None
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            earlier = self.rate()
        before = earlier or (0.0, 0.0)
        content = {"bytes": size + before[0] / 2, "seconds": round(seconds + before[1] / 2, 3)}
        with contextlib.suppress(OSError):
            write_atomically(self.path / _RATE, json.dumps(content).encode())

    def rate(self) -> tuple[float, float] | None:
        """Return these bytes and seconds; None if there is no file. Raises ValueError, TypeError or KeyError."""
        text = _read(self.path / _RATE)
        if not text:
            return None
        values = json.loads(text)
        return float(values["bytes"]), float(values["seconds"])

    def add_message(self, line: str) -> None:
        """Add a line that the driver's script shows to the user. Ignores OSError: planning must not fail for it."""
        with contextlib.suppress(OSError):
            messages = open_own(self.path / _MESSAGES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            with os.fdopen(messages, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def messages(self, after: int = 0) -> list[str]:
        """Return all messages but the first ``after``."""
        # The last line may be incomplete.
        lines = (_read(self.path / _MESSAGES) or "").splitlines(keepends=True)
        return [json.loads(line) for line in lines[after:] if line.endswith("\n")]

    def _plan(self, epoch: int) -> Path:
        return self.path / f"plan-{epoch:08}.json"

    def _results(self, epoch: int) -> Path:
        return results_file(self.path, epoch)


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as a FlowError that names the ledger."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FlowError(
            f"the ledger {path} cannot be written: {reason}; without it no run can be planned or report its"
            " results: fix that, or choose another folder with --report-dir"
        ) from error


def _last(paths: Iterable[Path]) -> int | None:
    return max((int(path.stem.rpartition("-")[2]) for path in paths), default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
