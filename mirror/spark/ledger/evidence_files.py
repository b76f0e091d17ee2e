"""The files in which ``mirror verify`` and ``mirror rehearse`` leave what they came to, for the runs of the flow."""

from __future__ import annotations

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


def write_verification(verify_dir: Path, record: Mapping[str, Any], time_ms: int) -> None:
    """Store a flow's entry of ``verify.json``, which ended at ``time_ms`` since 1970. Raises OSError."""
    path = _verification_file(verify_dir, record["flow"])
    earlier = _read(path, LastVerification.from_json)
    _write(path, LastVerification.of(record, time_ms, earlier).to_json())


def write_rehearsal(report_dir: Path, record: Mapping[str, Any]) -> None:
    """Store what ``mirror rehearse --json`` prints of a flow. Raises OSError."""
    own_folder(report_dir, others=REPORT_READERS)  # no run may have made it yet
    _write(_rehearsal_file(report_dir, record["flow"]), LastRehearsal.of(record).to_json())


def read_evidence(report_dir: Path, flow: str) -> Evidence:
    """Return what the last verification and rehearsal of ``flow`` left in the folder of its runs, or in one below."""
    found = [
        verification
        for folder in (report_dir / VERIFY_FOLDER, report_dir)
        if (verification := _read(_verification_file(folder, flow), LastVerification.from_json)) is not None
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
