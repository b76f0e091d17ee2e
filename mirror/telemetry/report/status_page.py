"""Renders the page about the present state of flows: in the style of the report, without charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from mirror.telemetry.report.templating import asset, policy_of, template


def render_status(
    title: str, flows: Sequence[Mapping[str, Any]], clusters: Sequence[Mapping[str, str]], now_ms: int, refresh_s: int
) -> str:
    """Return the page of ``now_ms`` (ms since 1970) with these texts; ``refresh_s``: 0, it is not loaded again."""
    theme = asset("theme.js")
    return template("status.html.j2").render(
        title=title,
        flows=flows,
        clusters=clusters,
        made_ms=now_ms,
        refresh_s=refresh_s,
        css=Markup(asset("report.css")),  # noqa: S704 - our own file
        theme=Markup(theme),  # noqa: S704 - our own file
        policy=policy_of([theme]),
    )
