"""The part of mirror/migration/README.md that is made of the importer's own table: settings without a key here.

python -m tests.migration.guide     # writes it again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mirror.migration.tables.equivalents import CONNECTOR, WORKER, Remark
from tests.generated_blocks import table, with_block

GUIDE: Final = Path(__file__).parents[2] / "mirror" / "migration" / "README.md"
JMX_ATTRIBUTES: Final = {"record-count", "record-rate", "byte-count", "byte-rate"} | {
    f"{name}-ms{suffix}"
    for name in ("record-age", "replication-latency", "checkpoint-latency")
    for suffix in ("", "-min", "-max", "-avg")
}
"""Of MirrorMaker 2's MBeans (``MirrorSourceMetrics``, ``MirrorCheckpointMetrics``)."""


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
    return with_block(text, "settings without a key", table(("MirrorMaker 2", "here"), rows))


if __name__ == "__main__":
    GUIDE.write_text(with_table(GUIDE.read_text("utf-8")), "utf-8")
