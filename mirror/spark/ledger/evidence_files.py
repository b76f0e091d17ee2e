"""The files with what the last verification and rehearsal of a flow came to, for its report and metrics.

The commands write them, beside their records in the flow's status topic; runs add what other hosts have written there.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mirror.local_users import REPORT_READERS, own_folder
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.telemetry.evidence import Evidence, LastRehearsal, LastVerification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

VERIFY_FOLDER: Final = "verify"
"""Where verifications are in the folder of runs, unless their ``--report-dir`` is that one, or another one."""
_FLOWS: Final = "flows"
_REHEARSALS: Final = "rehearsal"


def write_verification(verify_dir: Path, flow: str, found: LastVerification) -> None:
    """Store what a verification came to. Raises OSError."""
    _write(_verification_file(verify_dir, flow), found.to_json())


def read_verification(verify_dir: Path, flow: str) -> LastVerification | None:
    """Return what the last verification into this folder came to; None if there was none."""
    return _read(_verification_file(verify_dir, flow), LastVerification.from_json)


def write_rehearsal(report_dir: Path, flow: str, found: LastRehearsal) -> None:
    """Store what a rehearsal came to. Raises OSError."""
    own_folder(report_dir, others=REPORT_READERS)  # no run may have made it yet
    _write(_rehearsal_file(report_dir, flow), found.to_json())


def keep_evidence(report_dir: Path, flow: str, evidence: Evidence) -> None:
    """Store what is newer than what the folder has: other hosts have verified and rehearsed, too. Ignores OSError."""
    kept = read_evidence(report_dir, flow)
    verification, rehearsal = evidence.verification, evidence.rehearsal
    with contextlib.suppress(OSError):
        if verification is not None and (kept.verification is None or verification.time_ms > kept.verification.time_ms):
            write_verification(report_dir / VERIFY_FOLDER, flow, verification)
        if rehearsal is not None and (kept.rehearsal is None or rehearsal.time_ms > kept.rehearsal.time_ms):
            write_rehearsal(report_dir, flow, rehearsal)


def read_evidence(report_dir: Path, flow: str) -> Evidence:
    """Return what the last verification and rehearsal of ``flow`` left in the folder of its runs, or in one below."""
    found = [
        verification
        for folder in (report_dir / VERIFY_FOLDER, report_dir)
        if (verification := read_verification(folder, flow)) is not None
    ]
    return Evidence(
        max(found, key=lambda verification: verification.time_ms, default=None),
        _read(_rehearsal_file(report_dir, flow), LastRehearsal.from_json),
    )


def _verification_file(verify_dir: Path, flow: str) -> Path:
    return verify_dir / _FLOWS / f"{flow}.json"


def _rehearsal_file(report_dir: Path, flow: str) -> Path:
    return report_dir / _REHEARSALS / f"{flow}.json"


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())


def _read(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Return what is in the file; None if there is none, or if another version has written it."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None
