"""The table of config/README.md of brokers that are not Apache Kafka's.

python -m tests.foreign.table     # writes it again
"""

from __future__ import annotations

from tests.foreign.implementations import DOCUMENT, IMPLEMENTATIONS, Implementation
from tests.generated_blocks import table as table_of
from tests.generated_blocks import with_block

_HEAD = ("brokers", "as a source", "as a target", "APIs that they lack", "remarks")


def with_table(text: str) -> str:
    """Return the document's ``text`` with the present table."""
    return with_block(text, "other brokers", table_of(_HEAD, map(_row, IMPLEMENTATIONS)))


def _row(one: Implementation) -> list[str]:
    missing = ", ".join(one.missing) if one.missing else "none" if one.start else "not known"
    return [one.name, _said(one.source), _said(one.target), missing, one.remarks]


def _said(found: tuple[str, ...] | str | None) -> str:
    if found is None:
        return "*not tried*"
    return f"*refused*: {found}" if isinstance(found, str) else f"*run*: {', '.join(found)}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
