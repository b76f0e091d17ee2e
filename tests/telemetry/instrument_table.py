"""The table of metrics in config/dashboards/README.md, made from the instruments.

python -m tests.telemetry.instrument_table     # writes it again
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mirror.telemetry.metrics.instruments import ALL
from tests.generated_blocks import table, with_block

DOCUMENT: Final = Path(__file__).parents[2] / "config" / "dashboards" / "README.md"


def with_table(text: str) -> str:
    """Return the document's ``text`` with the present table."""
    rows = ((f"`{one.name}`", one.kind.value, f"`{one.unit}`", ", ".join(one.attributes), one.meaning) for one in ALL)
    return with_block(text, "metrics", table(("name", "kind", "unit", "attributes", "meaning"), rows))


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
