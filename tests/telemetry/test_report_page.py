"""The page: complete, small enough, without network access, and safe for all names of topics and brokers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from mirror.errors import DeliveryTimeout
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.timeline import CopyPhase, EventName, SpanName
from mirror.telemetry.report import page as page_module
from mirror.telemetry.report.format import link, rate, span
from mirror.telemetry.report.history import EARLIER_ATTEMPT
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.report.page import render
from tests.telemetry import runs

MADE_MS = runs.BEGAN_MS + 305_000


class Document(HTMLParser):
    """A page as a browser parses it: ``tags`` in order, the contents of ``scripts``, and the other ``text``."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""
        self.text += " " if tag in {"div", "dt", "td", "span", "h3"} else ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        number = next(at for at, each in enumerate(self.all("script")) if each.get("id") == "data")
        found: dict[str, Any] = json.loads(self.scripts[number])
        return found


def document(*flows: FlowReportData) -> Document:
    return Document(render(flows, MADE_MS))


def words(text: str) -> str:
    return " ".join(text.split())


def test_page_has_its_summary_without_scripts() -> None:
    text = words(document(runs.sick_run()).text)
    assert "2026-11-20 21:59:59 UTC to 2026-11-20 22:05:03 UTC (5 min 3 s) · 9 partitions of 5 topics" in text
    assert "6 of 9 partitions are complete. 4 need attention." in text
    assert "Records copied 8,338,000 in 16,676 batches" in text
    assert "Left to copy 1,732,000 of 10,070,000 at the start; the oldest waits for 10 min" in text
    assert "Expiries 2 no answer 1, no leader 1; 1 retry" in text
    assert "Batches re-encoded 966 small batches 930, offset gaps 36" in text
    assert "Gaps 12,550 12,400 lost: retention 12,400, compacted 120, markers 30" in text
    assert text.index("The source deleted records") < text.index("Expired: no leader") < text.index("Fenced:")
    assert "kafka-topics.sh --bootstrap-server $TARGET --describe --unavailable-partitions" in text
    assert "resting" in text


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (runs.view([runs.healthy(0), runs.healthy(1)], outcome=Outcome.COMPLETE), "All 2 partitions are complete."),
        (runs.view([runs.idle()], outcome=Outcome.COMPLETE), "1 of 1 partition is complete."),
        (runs.view([], outcome=Outcome.COMPLETE), "There was nothing to copy."),
        (runs.view([], outcome=Outcome.FAILED, error="no topic"), "The flow could not run: nothing was copied."),
        (runs.view([], outcome=Outcome.UNFINISHED, ended_ms=None), "Its partitions have no results yet."),
        (
            runs.view([runs.healthy()], ended_ms=None),
            "began 2026-11-20 21:59:59 UTC, and had not ended 5 min 5 s later",
        ),
        (runs.view([runs.healthy()], periods=300, covered_periods=200), "stream, 300 periods"),
        (runs.view([runs.healthy()], periods=300, covered_periods=200), "times are those of the last 200 periods"),
        (
            runs.view([replace(runs.healthy(), timeline=None)], periods=2, covered_periods=2),
            "A stream has no curves here: its lag over time is in its metrics.",
        ),
        (runs.view([runs.healthy()], trace="4bf92f35"), "trace id 4bf92f35"),
        (runs.view([runs.healthy()], periods=1, covered_periods=1), "stream, 1 period 1 of 1"),
        (runs.view([runs.healthy()]), "No batch expired, and no record was lost or skipped."),
    ],
)
def test_page_summarizes_each_kind_of_run(flow: FlowReportData, said: str) -> None:
    assert said in words(document(flow).text)


def test_page_data_equal_the_results() -> None:
    (flow,) = document(runs.sick_run()).data["flows"]
    expired = next(part for part in flow["parts"] if part["topic"] == "orders" and part["number"] == 3)
    assert (expired["outcome"], expired["expired"], expired["retries"]) == ("expired", 2, 1)
    assert expired["expiries"] == runs.expired().expiries
    assert expired["events"] == runs.timeline_of(runs.expired()).events
    assert expired["curve"][:4] == [800, 2_400_000, 51_000, 0], "times count from the run's start"
    assert sum(expired["curve"][1::4]) == expired["after"] == 1_512_000
    assert [flow["titles"][number] for number in expired["findings"]] == ["Expired: no leader on the target"]
    idle = next(part for part in flow["parts"] if part["topic"] == "config")
    assert "curve" not in idle
    assert "phases" not in idle


def test_page_data_have_ways_and_a_column_of_them_only_if_the_flow_does_not_say_them() -> None:
    young = replace(runs.healthy(0), way="sequences", way_reason="records are younger than 12 h")
    old = replace(runs.healthy(1), way="transactions", way_reason="records are older than 12 h")
    asked = replace(runs.healthy(2), way="transactions", way_reason='exactly-once-by = "transactions"')
    (flow,) = document(runs.view([young, old])).data["flows"]
    assert [(part["way"], part["way_reason"]) for part in flow["parts"]] == [
        ("sequences", "records are younger than 12 h"),
        ("transactions", "records are older than 12 h"),
    ]
    assert flow["ways"]
    for same in ([young], [asked], [runs.healthy(0)]):
        assert not document(runs.view(same)).data["flows"][0]["ways"]


def test_hostile_texts_are_escaped() -> None:
    html = render([runs.hostile_run()], MADE_MS)
    shown = Document(html)
    assert [tag for tag, _ in shown.tags if tag in {"img", "iframe", "object", "svg"}] == []
    assert len(shown.scripts) == len(document(runs.sick_run()).scripts) == 5
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    assert all(str(each["href"]).startswith("#") for each in shown.all("a"))
    assert shown.data["flows"][0]["parts"][0]["topic"] == runs.HOSTILE
    assert words(shown.text).count(runs.HOSTILE) >= 5, "it is shown as what it is"


def test_message_that_is_not_valid_unicode_is_shown() -> None:
    one = replace(runs.expired(), error="broker said \udce9\u2028\0", topic="caf\u00e9 & co")
    html = render([runs.view([one])], MADE_MS)
    assert html.encode("utf-8", "replace")
    assert Document(html).data["flows"][0]["parts"][0]["topic"] == "caf\u00e9 & co"


def test_page_allows_no_network_access_and_no_other_script() -> None:
    shown = document(runs.sick_run())
    assert [each for each in shown.tags if {"src", "srcset", "action", "data", "ping"} & each[1].keys()] == []
    assert shown.all("link") == []
    (policy,) = (each["content"] or "" for each in shown.all("meta") if "http-equiv" in each)
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    ran = [text for text, tag in zip(shown.scripts, shown.all("script"), strict=True) if "type" not in tag]
    packed = shown.scripts[next(at for at, tag in enumerate(shown.all("script")) if tag.get("id") == "plotly")]
    ran.append(gzip.decompress(base64.b64decode(packed)).decode())
    assert ran[-1] == get_plotlyjs()
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in ran]
    assert directives["script-src"].split() == hashes
    style = _asset("report.css")
    assert "url(" not in style
    assert "@import" not in style


def _asset(name: str) -> str:
    return (resources.files("mirror.telemetry.report") / "assets" / name).read_text(encoding="utf-8")


def test_scripts_know_all_events_phases_and_outcomes() -> None:
    """Kinds, fields, phases and outcomes are Python's; the page has a look and a name for each."""
    marks, style = _asset("marks.js"), _asset("report.css")
    for what in (*EventName, SpanName.CATCH_UP, EARLIER_ATTEMPT):
        assert f'"{what}": {{' in marks
    for name in {*DeliveryTimeout("late").describe(), "time_ms", "start", "end"}:
        assert re.search(rf"^  {name}: \[", marks, re.MULTILINE), name
    for name in (*CopyPhase, *Outcome):
        assert style.count(f"--{name}: #") == 2, f"{name} has a colour, light and dark"
    assert all(f'"{phase}"' in _asset("charts.js") for phase in CopyPhase)


def test_page_of_a_small_run_is_about_two_megabytes() -> None:
    assert len(render([runs.sick_run()], MADE_MS).encode()) < 2_150_000


def test_page_with_two_thousand_partitions_is_small() -> None:
    flow = runs.large_run()
    html = render([flow], MADE_MS)
    assert len(html.encode()) < 4_500_000
    parts = Document(html).data["flows"][0]["parts"]
    assert len(parts) == 2_000
    points = {(part["topic"], part["number"]): len(part.get("curve", [])) // 4 for part in parts}
    assert points["orders", 3] == 101, "the sick keep all of theirs"
    assert sum(points.values()) <= 70_000


def test_page_of_an_endless_stream_is_small() -> None:
    """Epochs without end: each partition with all the points, events and expiries that its history may have."""
    flow = runs.large_run(500)
    for one in flow.partitions:
        if one.timeline is not None:
            one.timeline.curve = [[runs.BEGAN_MS + each, each, each + 10, each] for each in range(0, 480_000, 1_000)]
            one.timeline.events = runs.timeline_of(runs.throttled()).events * 60
            one.expiries = runs.expired().expiries * 100
    assert len(render([flow], MADE_MS).encode()) < 6_200_000


def test_page_with_too_many_partitions_shows_the_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_PARTITIONS", 20)
    flow = runs.large_run(300)
    shown = document(flow)
    parts = [(part["topic"], part["number"]) for part in shown.data["flows"][0]["parts"]]
    assert len(parts) == 20
    assert {("orders", 3), ("payments", 1), ("clicks", 1)} <= set(parts)
    assert "280 more are not shown" in words(shown.text)
    assert "297 of 300 partitions are complete." in words(shown.text), "the figures are those of all"


def test_several_flows_have_a_switch() -> None:
    other = runs.view([runs.healthy()], flow="back", outcome=Outcome.COMPLETE)
    shown = document(runs.sick_run(), other)
    assert [each["data-flow"] for each in shown.all("button") if "data-flow" in each] == ["0", "1"]
    assert [each["name"] for each in shown.data["flows"]] == ["paris-berlin", "back"]
    assert "paris-berlin: expired, back: complete" in shown.text
    assert document(other).all("nav") == []


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0.0 s"),
        (59_940, "59.9 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (7_800_000, "2 h 10 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_are_formatted_with_units(ms: int, said: str) -> None:
    assert span(ms) == said


def test_rates_and_links_are_formatted() -> None:
    assert rate(3_000_000, 2_000) == "1.5 MB/s"
    assert rate(0, 2_000) == rate(5, 0) == "\u2013"
    assert link("f", "a b/#c", 3) == "#f:a%20b%2F%23c-3"
