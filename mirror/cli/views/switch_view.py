"""What a switch has come to: as lines, as JSON, and as one HTML file with its evidence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mirror.cli.console import print_notice
from mirror.errors import FlowError, KafkaError, printable
from mirror.relay.progress.stored_record import plain
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.switch.acl_fence import denials
from mirror.switch.pause import measured
from mirror.switch.record import State, SwitchRecord

if TYPE_CHECKING:
    from mirror.switch.arrivals import Arrived

_WATCH_S: Final = 2.0
_TEXTS: Final = frozenset({"state", "time", "by", "why", "ACL", "topic", "flow", "group", "hash", "seen"})
"""The columns that have no numbers."""


def to_json(name: str, record: SwitchRecord, arrived: Arrived | None = None, **more: Any) -> dict[str, Any]:
    """Return all that is known of a switch."""
    pause = measured(record)
    found = {"switch": name, **more, **plain(record)} | ({} if pause is None else {"pause": asdict(pause)})
    return found | ({} if arrived is None else {"arrived": asdict(arrived)})


def lines(name: str, record: SwitchRecord) -> Iterator[str]:
    """Yield what a person reads of a switch that is not looked after by this command."""
    goes_on = "has ended" if record.left else "had not ended when it stored this"
    yield printable(f"switch {name}: {record.state}, begun by mirror {record.command} (attempt {record.attempt})")
    for step in record.steps:
        yield printable(f"{_moment(step.at_ms)} {step.state}{f': {step.why}' if step.why else ''}")
    yield printable(f"last gone on by {record.operator or 'nothing yet'}, which {goes_on}")
    if record.rollback:
        yield printable(f"rolled back: {record.rollback}")
    if record.fences:
        yield f"producers are fenced since {_moment(record.fence_ms)}"
    if (pause := measured(record)) is not None:
        yield pause.line()


def show(read: Callable[[], SwitchRecord | None], name: str, html: Path | None, *, watch: bool, as_json: bool) -> None:
    """Print the record that ``read`` returns; with ``watch`` again whenever it has changed, until it has ended.

    Raises FlowError if there is none, MirrorError if it cannot be read.
    """
    shown: SwitchRecord | None = None
    while True:
        try:
            record = read()
        except KafkaError as error:
            if not watch or shown is None:
                raise
            print_notice(f"switch {name}: {error}; trying again")
            record = shown
        if record is None:
            raise FlowError(f"switch {name} has not begun")
        if record != shown:
            found = json.dumps(to_json(name, record), indent=None if watch else 2) if as_json else ""
            print(found or "\n".join(lines(name, record)), flush=True)
            if html is not None:
                write_page(html, name, record, SystemClock().unix_ms())
        if not watch or record.state in {State.DONE, State.ROLLED_BACK}:
            return
        shown = record
        time.sleep(_WATCH_S)


def write_page(path: Path, name: str, record: SwitchRecord, now_ms: int, arrived: Arrived | None = None) -> None:
    """Write the record as one HTML file. Raises FlowError."""
    # Not at the top: the import of Jinja takes 0.1 s.
    from mirror.telemetry.report.tables_page import render_tables, row, table

    def make(title: str, columns: Sequence[str], rows: Iterator[Sequence[object]]) -> dict[str, Any]:
        return table(title, columns, _TEXTS, [row([str(cell) for cell in cells]) for cells in rows])

    page = render_tables(
        "Record of a switch",
        [_section(name, record, make, arrived)],
        now_ms,
        f"mirror {record.command} {name} --status --json",
    )
    try:
        write_atomically(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise FlowError(f"{path} cannot be written: {error.strerror}; choose another file with --html") from error


def _section(
    name: str, record: SwitchRecord, make: Callable[..., dict[str, Any]], arrived: Arrived | None
) -> dict[str, Any]:
    pause, created = measured(record), denials(record)
    outcome = "complete" if record.state is State.DONE else "failed"
    partitions = sum(map(len, record.ends.values()))
    tables = [
        make("Steps", ("state", "time", "seconds", "by", "why"), _steps(record)),
        make("ACLs that it has created on the source", ("ACL",), ((acl,) for acl in created)),
        make("Ends", ("topic", "partition", "fenced end", "target's end"), _ends(record)),
        make("Copied when a failover opened", ("topic", "partition", "source offset"), _copied(record)),
        make("Proofs", ("flow", "hash"), iter(record.proofs.items())),
        make("Groups, with the hash of their positions", ("group", "hash"), iter(record.groups.items())),
        make("Flows that it holds", ("flow", "generation"), iter(record.rested.items())),
        make("Clients on the target", ("topic", "partition", "first offset", "seen"), _arrivals(arrived)),
    ]
    pause_tile = "none" if pause is None else f"{pause.total_ms / 1000:.1f} s"
    return {
        "name": name,
        "outcome": outcome,
        "badge": str(record.state),
        "when": f"mirror {record.command}, flows {', '.join(record.flows)}, clusters {' to '.join(record.clusters)}",
        "headline": f"rolled back: {record.rollback}" if record.rollback else "" if pause is None else pause.line(),
        "tiles": [
            {"name": "pause of producers", "value": pause_tile, "more": "from the fence until clients were switched"},
            {"name": "topics fenced", "value": f"{len(record.topics):,}", "more": f"{partitions:,} partitions"},
            {"name": "groups moved", "value": f"{len(record.groups):,}", "more": "each at its exact positions"},
            {"name": "ACLs created", "value": f"{len(created):,}", "more": "on the source"},
        ],
        "tables": tables,
        "notes": [] if arrived is None else [arrived.summary()],
    }


def _steps(record: SwitchRecord) -> Iterator[tuple[object, ...]]:
    before_ms = record.steps[0].at_ms if record.steps else 0
    for step in record.steps:
        yield step.state, _moment(step.at_ms), f"{max(0, step.at_ms - before_ms) / 1000:.1f}", step.by, step.why
        before_ms = step.at_ms


def _ends(record: SwitchRecord) -> Iterator[tuple[object, ...]]:
    for topic, of_topic in record.ends.items():
        there = record.target_ends.get(topic, ())
        for partition, end in enumerate(of_topic):
            yield topic, partition, end, there[partition] if partition < len(there) else ""


def _copied(record: SwitchRecord) -> Iterator[tuple[object, ...]]:
    for topic, offsets in record.copied.items():
        for partition, offset in enumerate(offsets):
            yield topic, partition, offset


def _arrivals(arrived: Arrived | None) -> Iterator[tuple[object, ...]]:
    for topic, first in ({} if arrived is None else arrived.topics).items():
        yield topic, first.partition, first.offset, _moment(first.seen_ms)


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
