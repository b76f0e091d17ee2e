"""jobs/TRIED.md: what was run of all that can be combined, by which test, and what was not.

``python -m tests.installation.tried`` writes its tables again, of ``tried.toml`` and of the brokers' own tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.foreign.implementations import IMPLEMENTATIONS, Implementation
from tests.generated_blocks import table, with_block
from tests.installation.lowest import ROOT
from tests.releases.releases import VERSIONS

DOCUMENT: Final = ROOT / "jobs" / "TRIED.md"
_FILE: Final = Path(__file__).with_suffix(".toml")
_NOT_TRIED: Final = "*not tried*"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that may be there or not."""

    what: str
    by: tuple[str, ...] = ()
    """Tests below ``tests/``."""
    by_hand: str = ""
    remarks: str = ""

    @property
    def said(self) -> str:
        """Whether it was run, and by what."""
        tests = [f"`{one.partition('::')[2] or one.rpartition('/')[2]}`" for one in self.by]
        found = [*tests, *filter(None, [self.by_hand])]
        return f"*run*: {', '.join(found)}" if found else _NOT_TRIED


def parts() -> Iterator[tuple[str, list[Row]]]:
    """Yield the parts, with the heads of their first columns."""
    for part in tomllib.loads(_FILE.read_text("utf-8"))["part"]:
        rows = [Row(**{**row, "by": tuple(row.get("by", ()))}) for row in part["rows"]]
        yield part["head"], rows
    yield "brokers, as source or target", list(_brokers())


def _brokers() -> Iterator[Row]:
    releases = f"Apache Kafka {', '.join(VERSIONS)}"
    yield Row(
        what=releases, by=("releases/test_clusters.py",), remarks="[each job](../config/README.md#releases-of-brokers)"
    )
    for one in IMPLEMENTATIONS:
        yield Row(what=one.name, by=_tests(one), remarks=one.source if isinstance(one.source, str) else "")


def _tests(one: Implementation) -> tuple[str, ...]:
    return ("foreign/test_copies.py",) if one.start else ()


def with_tables(text: str) -> str:
    """Return the document's ``text`` with the present tables."""
    tables = (
        table((head, "", "remarks"), ([row.what, row.said, row.remarks] for row in rows)) for head, rows in parts()
    )
    return with_block(text, "tried", "\n".join(tables))


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text("utf-8")), "utf-8")
