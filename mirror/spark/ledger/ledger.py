"""The ledger: the files of one run of one flow, for people and its report.

The driver writes them. A stream goes on while they cannot be written, and records nothing then; a scheduled run fails.
The ledger is for information only: the progress, and what other hosts and later runs need, are on the target. Every
file is written atomically.

::

    <report dir>/ledger/<flow>/<run>/
        plan-<number>.json       ranges, and results without a task
        results-<number>.jsonl.gz  one row per range and attempt

A scheduled run has one plan, 0. A stream has one for each period, from 1.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError
from mirror.local_users import REPORT_READERS, own_folder, readers_of
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.result_files import read_results, results_file, write_results
from mirror.spark.ledger.retention import bound_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_RUNS: Final = 10
"""How many runs of a flow the ledger keeps; a flow that runs every minute must not fill the disk."""
MAX_PERIODS: Final = 200
"""How many periods of a stream it keeps: ten hours of three-minute periods."""
_PROBE: Final = "probe"
_PROBE_BYTES: Final = 64 * 1024
"""Roughly as much as a small run writes."""


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
            for old in sorted(folder.iterdir())[:-MAX_RUNS]:
                shutil.rmtree(old, ignore_errors=True)
        bound_folder(report_dir)
        return cls(path)

    @classmethod
    def of_stream(cls, report_dir: Path, flow: str, run: str) -> Ledger:
        """As :meth:`open`, but where it cannot be written, it is tried again with each result: copying goes on."""
        with contextlib.suppress(FlowError):
            return cls.open(report_dir, flow, run)
        return cls(report_dir.absolute() / "ledger" / flow / run)

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

    def write_plan(self, plan: Plan) -> None:
        """Record the plan of its period in place of an earlier one, and remove periods beyond :data:`MAX_PERIODS`."""
        write_atomically(self._plan(plan.period), json.dumps(plan.to_json()).encode())
        old = plan.period - MAX_PERIODS
        for path in (self._plan(old), self._results(old)):
            path.unlink(missing_ok=True)

    def plan(self, period: int = 0) -> Plan | None:
        """Return the plan of ``period``, or None if there is none yet."""
        text = _read(self._plan(period))
        return Plan.from_json(json.loads(text)) if text else None

    def planned_ms(self, period: int = 0) -> int:
        """Return when the plan of ``period`` was recorded, in ms since 1970. Raises OSError."""
        return int(self._plan(period).stat().st_mtime * 1000)

    def last_planned_period(self) -> int | None:
        """Return the last period that has a plan; None before the first."""
        return _last(self.path.glob("plan-*.json"))

    def last_completed_period(self) -> int | None:
        """Return the last period that has results; None before the first."""
        return _last(self.path.glob("results-*.jsonl.gz"))

    def write_attempts(self, attempts: Iterable[AttemptResult], period: int = 0) -> None:
        """Record the results of a period's tasks, one row per range and attempt."""
        write_results(self.path, attempts, period)

    def attempts(self, period: int = 0) -> list[AttemptResult]:
        """Return all recorded attempts; none before they are recorded."""
        return read_results(self._results(period))

    def _plan(self, period: int) -> Path:
        return self.path / f"plan-{period:08}.json"

    def _results(self, period: int) -> Path:
        return results_file(self.path, period)


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
    return max((int(path.name.partition(".")[0].rpartition("-")[2]) for path in paths), default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
