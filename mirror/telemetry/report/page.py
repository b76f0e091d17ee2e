"""The page: one self-contained HTML file. What is known beforehand is text; charts and table are drawn by its scripts.

Topics' names and brokers' messages are anybody's: Jinja escapes them in the text and in the data, the scripts put them
into the document as text only, and the page's policy lets no other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from mirror.relay.model.ranges import Outcome
from mirror.telemetry.report import format as wording
from mirror.telemetry.report.advice import Level
from mirror.telemetry.report.findings import Finding, find, slowest
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.report.payload import curves_of, events_for_each, flow_values
from mirror.telemetry.report.phases import MEANINGS
from mirror.telemetry.report.texts import flow_texts

MOST_PARTITIONS: Final = 10_000
"""In the table of one flow; of more, those that need nobody's attention and copied least are left out, and counted."""
_SLOWEST: Final = 15
_LEVEL: Final = 6
"""The highest takes half as long again, and saves 0.2%."""
_SHOWN: Final = 4
_SHOWN_FOLDED: Final = 60
_SCRIPTS: Final = ("values.js", "marks.js", "charts.js", "table.js", "detail.js", "start.js")

GLOSSARY: Final = (
    ("complete", "copied to where the source ended when the run began; a stream: its last epoch ended in order"),
    (
        "expired",
        "a batch was not acknowledged within delivery.timeout.ms; dropped with its transaction, tried again later",
    ),
    ("failed", "it cannot be copied until somebody does something; the error says what"),
    ("unfinished", "the run or the epoch ended first; the next one goes on"),
    ("fenced", "a newer attempt took over"),
    ("left", "records that the source has and the target has not, by offsets"),
    ("encoded anew", "batches that could not be passed on as bytes, with the reason; they cost many times the CPU"),
    ("skipped", "source batches with nothing to copy (control, aborted, empty), and records that a policy left out"),
    ("gaps", "source offsets that were not there: a log's own holes (compacted, markers), or a loss (the others)"),
    *((f"phase {name}", text) for name, text in MEANINGS.items()),
)


def render(flows: Sequence[FlowReportData], made_ms: int) -> str:
    """The report of ``flows``, written at ``made_ms`` (ms since 1970)."""
    bounded = [_bounded(flow) for flow in flows]
    findings = [find(flow.flow, flow.partitions) for flow in bounded]
    slow = [slowest(flow.partitions, _SLOWEST) for flow in bounded]
    curves = curves_of(bounded, [_places_of_the_sick(found) for found in findings])
    most_events = events_for_each(bounded)
    scripts = _scripts()
    return _template().render(
        flows=[
            flow_texts(flow, shown, found, places, made_ms)
            for flow, shown, found, places in zip(flows, bounded, findings, slow, strict=True)
        ],
        data={
            "made": made_ms,
            "flows": [
                flow_values(flow, drawn, found, places, most_events)
                for flow, drawn, found, places in zip(bounded, curves, findings, slow, strict=True)
            ],
        },
        made_ms=made_ms,
        css=Markup(_asset("report.css")),  # noqa: S704 - our own file
        scripts=scripts,
        plotly=_packed(),
        policy=_policy([*scripts.values(), get_plotlyjs()]),
        glossary=GLOSSARY,
        shown=_SHOWN,
        shown_folded=_SHOWN_FOLDED,
    )


def _bounded(flow: FlowReportData) -> FlowReportData:
    """With no more partitions than a page can show."""
    if len(flow.partitions) <= MOST_PARTITIONS:
        return flow
    ranked = sorted(flow.partitions, key=lambda one: (one.outcome is Outcome.COMPLETE, not one.expiries, -one.bytes))
    kept = sorted(ranked[:MOST_PARTITIONS], key=lambda one: (one.topic, one.partition))
    return replace(flow, partitions=kept)


def _places_of_the_sick(findings: Sequence[Finding]) -> set[int]:
    return {place for each in findings if each.advice.level is not Level.NOTE for place, _ in each.members}


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(moment=wording.moment, counted=wording.counted)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template("page.html.j2")


@cache
def _scripts() -> dict[str, Markup]:
    """What runs in the page, in this order: the colours, the page's own, and what unpacks the charts' library."""
    own = "\n".join(_asset(name) for name in _SCRIPTS)
    texts = {
        "first": _asset("theme.js"),
        "page": f'"use strict";\n(() => {{\n{own}\n}})();\n',
        "last": _asset("library.js"),
    }
    for name, text in texts.items():
        if "</script" in text.lower():  # nor may a later version of the library
            raise ValueError(f"the script {name!r} would end its own element")
    return {name: Markup(text) for name, text in texts.items()}  # noqa: S704 - our own files


@cache
def _packed() -> str:
    """The charts' library, nearly all of the file: 4.8 MB, packed 2.0. Base64 of gzip, which browsers can unpack."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), _LEVEL, mtime=0)).decode()


def _policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy: these scripts, by their hashes, no others; nothing from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
