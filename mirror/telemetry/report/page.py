"""Renders the page: one self-contained HTML file. The template has the texts; scripts draw the charts and the table.

Names of topics and messages of brokers are untrusted: Jinja escapes them in the text and in the data, the scripts
insert them into the document as text only, and the page's Content-Security-Policy allows no other script and no
network access.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from mirror.relay.model.ranges import Outcome
from mirror.telemetry.report.findings import find, slowest, unhealthy_partitions
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.report.payload import events_per_partition, flow_values, thinned_curves
from mirror.telemetry.report.phases import MEANINGS
from mirror.telemetry.report.templating import asset, policy_of, template
from mirror.telemetry.report.texts import flow_texts

MAX_PARTITIONS: Final = 10_000
"""Partitions in the table of a flow. Further partitions, healthy ones that copied least, are only counted."""
_MAX_SLOWEST: Final = 15
_COMPRESSION_LEVEL: Final = 6
"""The highest level takes 1.5 times as long and saves 0.2%."""
_MAX_MEMBERS_SHOWN: Final = 4
_MAX_MEMBERS_FOLDED: Final = 60
_SCRIPTS: Final = ("values.js", "marks.js", "charts.js", "table.js", "detail.js", "start.js")

GLOSSARY: Final = (
    ("complete", "copied up to the source's end when the run began; in a stream, the last period completed"),
    (
        "expired",
        "a batch was not acknowledged within delivery.timeout.ms; its transaction is aborted, and the copy is retried",
    ),
    ("failed", "the partition cannot be copied until an operator acts; the error says what to do"),
    ("unfinished", "the run ended first; the next one continues"),
    ("fenced", "a newer attempt took over"),
    (
        "way",
        "how a partition is copied exactly once: in transactions, or by sequences, which brokers check for each batch",
    ),
    ("left", "source offsets that are not copied to the target yet"),
    ("re-encoded", "batches that could not be passed on as bytes, by reason; they take many times the CPU"),
    ("skipped", "source batches without records to copy (control, aborted, empty), and records that a policy skipped"),
    ("aside", "records that the target does not take, and damaged batches, in the flow's aside topic, by reason"),
    ("gaps", "source offsets that do not exist: normal ones (compacted, markers), or lost records (all others)"),
    *((f"phase {name}", text) for name, text in MEANINGS.items()),
)


def render(flows: Sequence[FlowReportData], made_ms: int) -> str:
    """Return the report of ``flows``, written at ``made_ms`` (ms since 1970)."""
    bounded = [_bounded(flow) for flow in flows]
    findings = [find(flow.flow, flow.partitions) for flow in bounded]
    slow = [slowest(flow.partitions, _MAX_SLOWEST) for flow in bounded]
    curves = thinned_curves(bounded, [unhealthy_partitions(found) for found in findings])
    max_events = events_per_partition(bounded)
    scripts = _scripts()
    return template("page.html.j2").render(
        flows=[
            flow_texts(flow, shown, found, indexes, made_ms)
            for flow, shown, found, indexes in zip(flows, bounded, findings, slow, strict=True)
        ],
        data={
            "made": made_ms,
            "flows": [
                flow_values(flow, drawn, found, indexes, max_events)
                for flow, drawn, found, indexes in zip(bounded, curves, findings, slow, strict=True)
            ],
        },
        made_ms=made_ms,
        css=Markup(asset("report.css")),  # noqa: S704 - our own file
        scripts=scripts,
        plotly=_packed(),
        policy=policy_of([*scripts.values(), get_plotlyjs()]),
        glossary=GLOSSARY,
        members_shown=_MAX_MEMBERS_SHOWN,
        members_folded=_MAX_MEMBERS_FOLDED,
    )


def _bounded(flow: FlowReportData) -> FlowReportData:
    """Return the flow with no more partitions than a page can show."""
    if len(flow.partitions) <= MAX_PARTITIONS:
        return flow
    ranked = sorted(
        flow.partitions, key=lambda result: (result.outcome is Outcome.COMPLETE, not result.expiries, -result.bytes)
    )
    selected = sorted(ranked[:MAX_PARTITIONS], key=lambda result: (result.topic, result.partition))
    return replace(flow, partitions=selected)


@cache
def _scripts() -> dict[str, Markup]:
    """Return the page's scripts: the first sets the colours, the last unpacks the chart library."""
    own = "\n".join(asset(name) for name in _SCRIPTS)
    texts = {
        "first": asset("theme.js"),
        "page": f'"use strict";\n(() => {{\n{own}\n}})();\n',
        "last": asset("library.js"),
    }
    for name, text in texts.items():
        if "</script" in text.lower():
            raise ValueError(f"the script {name!r} contains </script and would end its own element")
    return {name: Markup(text) for name, text in texts.items()}  # noqa: S704 - our own files


@cache
def _packed() -> str:
    """Return the chart library as Base64 of gzip, which browsers can unpack: 2.0 MB instead of 4.8 MB."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), _COMPRESSION_LEVEL, mtime=0)).decode()
