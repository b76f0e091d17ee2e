"""The parts of documents that are made from the code: each stands between two marks, and a test compares it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_BAR: Final = r"\|"


def with_block(text: str, name: str, block: str) -> str:
    """Return a document's ``text`` with ``block`` between the marks ``<!-- NAME: begin -->`` and ``end``.

    Raises ValueError if the document does not have these marks.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        msg = f"the document has no marks for {name!r}"
        raise ValueError(msg)
    return f"{before}{begin}\n{block}\n{end}{after}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. A cell's vertical bars are escaped."""
    first, *others = [_row(cells) for cells in (head, *rows)]
    return f"{first}{'|---' * len(head)}|\n{''.join(others)}"


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {cell.replace('|', _BAR)} " if cell else "| " for cell in cells) + "|\n"
