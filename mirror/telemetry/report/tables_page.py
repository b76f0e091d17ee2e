"""Renders tables: one self-contained HTML file in the style of the report, without charts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from mirror.errors import brief
from mirror.telemetry.report.templating import asset, policy_of, template

MAX_ROWS: Final = 2_000
"""Lines of each table, the worst first; the rest is counted."""
_MAX_CHARACTERS: Final = 400


def render_tables(brand: str, sections: Sequence[Mapping[str, Any]], made_ms: int, all_by: str) -> str:
    """Return the page of ``sections``, written at ``made_ms`` (ms since 1970); the command ``all_by`` prints all rows.

    A section has ``name``, ``outcome``, ``badge``, ``when``, ``headline``, ``tiles``, ``tables`` and ``notes``.
    """
    theme = asset("theme.js")
    return template("tables.html.j2").render(
        brand=brand,
        sections=sections,
        made_ms=made_ms,
        all_by=all_by,
        css=Markup(asset("report.css")),  # noqa: S704 - our own file
        theme=Markup(theme),  # noqa: S704 - our own file
        policy=policy_of([theme]),
    )


def table(title: str, columns: Sequence[str], texts: Collection[str], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a table; the columns that are not ``texts`` have numbers."""
    more = f"{len(rows) - MAX_ROWS:,}" if len(rows) > MAX_ROWS else ""
    names = [{"name": name, "number": name not in texts} for name in columns]
    return {"title": title, "columns": names, "rows": rows[:MAX_ROWS], "more": more}


def row(cells: Sequence[str], *, bad: bool = False) -> dict[str, Any]:
    """Return a row; ``bad``: the cell before the last one, which says what is wrong, is marked."""
    return {"bad": len(cells) - 2 if bad else None, "cells": [brief(text, _MAX_CHARACTERS) for text in cells]}
