"""The dashboards and alerts of config/ without Prometheus: their queries use existing names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.telemetry.metrics.instruments import ALL
from mirror.telemetry.traces.ids import period_id
from mirror.telemetry.traces.spans import TaskFacts, partition_span
from tests.telemetry.dashboards import (
    BOARDS,
    RULES,
    Query,
    choices,
    instrument,
    labels_in,
    load,
    measured_in,
    panels,
    queries,
)
from tests.telemetry.results import AT_MS, expired

every_board = pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
ALERTS = re.findall(r"alert: (\w+)\n((?: {8}.*\n)+)", RULES.read_text(encoding="utf-8"))


def asked() -> list[Query]:
    found = [query for path in BOARDS for query in queries(path)]
    found += [Query(path.name, selector) for path in BOARDS for _, selector, _ in choices(path)]
    found += [Query(name, rule.partition("for:")[0].partition("labels:")[0]) for name, rule in ALERTS]
    return found


def test_there_are_three_dashboards_and_the_alerts() -> None:
    assert [path.stem for path in BOARDS] == ["flow", "overview", "partition"]
    assert len({load(path)["uid"] for path in BOARDS}) == len(BOARDS)
    assert len(ALERTS) == RULES.read_text().count("alert:") > 5


@pytest.mark.parametrize("query", asked(), ids=lambda query: query.where)
def test_queries_use_existing_metrics_and_attributes(query: Query) -> None:
    names = measured_in(query.expr)
    assert names, query
    known = set[str]()
    for name in names:
        one = instrument(name)
        assert one is not None, f"{name} is no measurement: {query}"
        known.update(attribute.replace(".", "_") for attribute in one.attributes)
    assert labels_in(query.expr) <= known, query


def test_every_metric_is_shown_on_a_dashboard() -> None:
    shown = {one for query in asked() for name in measured_in(query.expr) if (one := instrument(name))}
    assert [one.name for one in ALL if one not in shown] == []


@every_board
def test_every_panel_has_a_description_and_a_unit(path: Path) -> None:
    for panel in panels(load(path)):
        assert panel["description"].endswith("."), panel["title"]
        if any(target["datasource"]["type"] == "prometheus" for target in panel["targets"]):
            units = [panel["fieldConfig"]["defaults"].get("unit")]
            units += [each["value"] for one in panel["fieldConfig"]["overrides"] for each in one["properties"]]
            assert any(units), panel["title"]


@every_board
def test_panels_query_the_chosen_sources_and_do_not_overlap(path: Path) -> None:
    board = load(path)
    sources = {f"${{{one['name']}}}" for one in board["templating"]["list"] if one["type"] == "datasource"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels(board):
        for target in panel["targets"]:
            assert target["datasource"]["uid"] in sources, panel["title"]
    for one, other in itertools.combinations((panel["gridPos"] for panel in board["panels"]), 2):
        assert not _overlap(one, other), (one, other)


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


@every_board
def test_links_lead_to_existing_dashboards_and_variables(path: Path) -> None:
    boards = {load(one)["uid"]: {each["name"] for each in load(one)["templating"]["list"]} for one in BOARDS}
    found = 0
    for url in _urls(load(path)):
        uid, _, given = url.removeprefix("/d/").partition("?")
        for name in re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", given):
            assert (name[0] or name[1]) in boards[uid], url
            found += 1
    assert found


def _urls(part: Any) -> list[str]:
    if isinstance(part, dict):
        return [part["url"]] if "url" in part else [url for each in part.values() for url in _urls(each)]
    return [url for each in part for url in _urls(each)] if isinstance(part, list) else []


@every_board
def test_trace_queries_use_existing_attributes(path: Path) -> None:
    first = str(period_id("f", "run", 1))
    result = expired(3, sick_since_ms=AT_MS, sick_trace=first, last_trace=first)
    assert result.outcome is Outcome.EXPIRED
    facts = TaskFacts(
        period=period_id("f", "run", 2),
        flow="f",
        task=0,
        attempt=0,
        host="h",
        pid=1,
        began_ms=AT_MS,
        ended_ms=AT_MS + 1,
    )
    span = partition_span(facts, result)
    for panel in panels(load(path)):
        for target in panel["targets"]:
            if target["datasource"]["type"] != "tempo":
                continue
            for name in re.findall(r"span\.([a-z_.]+)", target["query"]):
                assert name in span.attributes, panel["title"]
            for name in re.findall(r'name = "([a-z_.]+)"', target["query"]):
                assert name == span.name


@pytest.mark.parametrize(("name", "rule"), ALERTS)
def test_every_alert_says_what_to_do(name: str, rule: str) -> None:
    assert re.search(r"severity: (critical|warning|info)", rule), name
    assert "summary:" in rule
    assert "description:" in rule
    used = set(re.findall(r"\$labels\.(\w+)", rule))
    known = set[str]()
    for measured in measured_in(rule.partition("annotations:")[0]):
        one = instrument(measured)
        assert one is not None
        known |= set(one.attributes)
    assert used <= known, name
