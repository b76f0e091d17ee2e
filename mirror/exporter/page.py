"""The page about all flows for an operator at night: one self-contained HTML file, the worst flows first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.exporter.readings import ClusterReading, FlowReading, after_reading
from mirror.exporter.texts import cluster_texts, flow_texts, headline
from mirror.extras import REPORT, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.config.models import FlowConfig
    from mirror.errors import MirrorError
    from mirror.spark.status.flow_status import FlowStatus


def render(flows: Sequence[FlowReading], clusters: Sequence[ClusterReading], now_ms: int, *, refresh_s: int = 0) -> str:
    """Return the page at ``now_ms`` (since 1970).

    ``refresh_s``: a browser loads it again after so long; 0: never. Raises FlowError without the extra "report".
    """
    require("the page about flows", REPORT)
    from mirror.telemetry.report.status_page import render_status

    texts = sorted((flow_texts(one, now_ms) for one in flows), key=lambda one: one["rank"])
    return render_status(headline(texts), texts, [cluster_texts(one, now_ms) for one in clusters], now_ms, refresh_s)


def readings_of(
    flows: Iterable[FlowConfig],
    statuses: Iterable[FlowStatus],
    errors: Mapping[str, MirrorError],
    away: Mapping[str, str],
    now_ms: int,
) -> tuple[list[FlowReading], list[ClusterReading]]:
    """Return what one reading has found, for :func:`render`; ``away`` are the errors of clusters by name."""
    found = {
        flow.name: FlowReading(
            flow=flow.name, source=flow.source, target=flow.target, error=str(errors.get(flow.name, ""))
        )
        for flow in flows
    }
    for status in statuses:
        before = found[status.flow]
        found[status.flow] = before if before.error else after_reading(before, status)
    names = dict.fromkeys(name for one in found.values() for name in (one.source, one.target))
    clusters = [
        ClusterReading(
            name=name, answers=name not in away, answered_ms=0 if name in away else now_ms, error=away.get(name, "")
        )
        for name in names
    ]
    return list(found.values()), clusters
