"""The parts of mirror/migration/README.md that are made of the code: settings without a key here, and metrics.

python -m tests.migration.guide     # writes it again
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from mirror.migration.tables.equivalents import CONNECTOR, WORKER, Remark
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.instruments import Instrument, Kind
from tests.generated_blocks import table, with_block

GUIDE: Final = Path(__file__).parents[2] / "mirror" / "migration" / "README.md"
JMX_ATTRIBUTES: Final = {"record-count", "record-rate", "byte-count", "byte-rate"} | {
    f"{name}-ms{suffix}"
    for name in ("record-age", "replication-latency", "checkpoint-latency")
    for suffix in ("", "-min", "-max", "-avg")
}
"""Of MirrorMaker 2's MBeans (``MirrorSourceMetrics``, ``MirrorCheckpointMetrics``)."""
METRICS: Final[tuple[tuple[tuple[str, ...], tuple[Instrument, ...], str], ...]] = (
    (("record-count",), (instruments.RECORDS,), "committed on the target, by topic"),
    (("record-rate",), (instruments.RATE,), "over the last minute"),
    (("byte-count", "byte-rate"), (instruments.BYTES,), "compressed; its rate is that of the counter"),
    (
        ("replication-latency-ms",),
        (instruments.LATENCY,),
        "from a record's timestamp to the target's acknowledgement, by flow; a histogram has quantiles",
    ),
    (
        ("record-age-ms",),
        (instruments.LAG_TIME,),
        "not the age of what was copied, but of the oldest record that is not",
    ),
    (
        ("checkpoint-latency-ms",),
        (instruments.GROUPS_TIME,),
        "for how long a group's position on the target is not that on the source",
    ),
    ((), (instruments.LAG, instruments.DRAIN, instruments.LOSS), "the lag, when it ends, when retention takes records"),
    (
        (),
        (instruments.PARTITIONS, instruments.GROUPS, instruments.FAILURES, instruments.EXPIRIES),
        "states, and what has failed",
    ),
    ((), (instruments.GAPS, instruments.TARGET_LOSSES), "what was lost"),
)
"""MirrorMaker 2's attributes (also with -min, -max and -avg), what is here instead, and how it differs."""


def commands() -> list[str]:
    """The commands of the guide, in its order."""
    lines = (line.strip() for line in GUIDE.read_text("utf-8").splitlines())
    return [line for line in lines if line.startswith("mirror ")]


def _rows(prefix: str, remarks: Mapping[str, Remark]) -> Iterator[tuple[str, str]]:
    """Yield one row for all settings of which the importer says the same."""
    by_remark: dict[Remark, list[str]] = {}
    for key, remark in remarks.items():
        by_remark.setdefault(remark, []).append(f"`{prefix}{key}`")
    for remark, keys in by_remark.items():
        yield ", ".join(keys), "; ".join(filter(None, (remark.meaning, remark.action)))


def with_table(text: str) -> str:
    """Return the guide's ``text`` with the present table."""
    rows = [*_rows("A->B.", CONNECTOR), *_rows("B.", WORKER)]
    text = with_block(text, "settings without a key", table(("MirrorMaker 2", "here"), rows))
    return with_block(text, "metrics", table(("JMX attribute", "here", "in Prometheus", ""), map(_metric_row, METRICS)))


def _metric_row(row: tuple[tuple[str, ...], tuple[Instrument, ...], str]) -> tuple[str, ...]:
    theirs, ours, note = row
    names = (one.prometheus + ("_bucket" if one.kind is Kind.HISTOGRAM else "") for one in ours)
    return _quoted(theirs) or "none", _quoted(one.name for one in ours), _quoted(names), note


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    GUIDE.write_text(with_table(GUIDE.read_text("utf-8")), "utf-8")
