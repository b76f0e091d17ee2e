"""The page about all flows: what it says, and that nothing from outside becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mirror.exporter.page import render
from mirror.exporter.problems import problems_of
from mirror.exporter.readings import FlowReading
from mirror.relay.progress.latch import Latch, Role
from mirror.telemetry.lag.lags import UNKNOWN_LAG
from tests.exporter.sample_readings import (
    BETWEEN_RUNS,
    CLUSTERS,
    FLOWS,
    GONE,
    HELD,
    IN_ORDER,
    IN_TROUBLE,
    NOW,
    flow,
    lost,
    partition,
    reading,
)


def text_of(page: str) -> str:
    body = page[page.index("<body>") :]
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.fixture(scope="module")
def page() -> str:
    return render(FLOWS, CLUSTERS, NOW, refresh_s=10)


def test_the_worst_flows_come_first_and_are_counted(page: str) -> None:
    names = re.findall(r'<section class="flow" id="flow-\d+">\s*<div class="head"><h2>([^<]+)</h2>', page)
    assert names[:2] == ["payments-with-a-name-that-is-rather-long-for-a-telephone", "clicks"]
    assert names[2:4] == ["from-oslo", "audit"]
    assert set(names[4:]) == {"orders-paris-berlin", "hourly-reports", "new"}
    assert "<title>4 of 7 flows need attention</title>" in page


def test_each_flow_says_its_state_in_words_its_lag_and_its_last_success(page: str) -> None:
    text = text_of(page)
    assert "It is a stream that runs, since 2027-01-13 06:00:00 UTC (2 d 2 h ago); caught up." in text
    ended = "It is copied by scheduled runs, and has ended (complete), since 2027-01-15 07:40:00 UTC (20 min ago)"
    assert f"{ended}; caught up." in text
    assert "120,017 records behind, up to 1 h 6 min late" in text
    assert "last success 20 min ago" in text
    assert "last verification 6 h ago found equal 6 h ago" in text
    assert "consumer groups 39 of 40" in text


def test_each_problem_says_what_to_do(page: str) -> None:
    text = text_of(page)
    assert "Start it again: it goes on where it stopped, and nothing is copied twice." in text
    assert "mirror stream --flow clicks" in page
    assert "mirror stop --resume --flow audit" in page
    assert "billing unauthorized: Read on group billing" in text
    assert "stuck; 120,000 records to copy; expired (in flight, not enough replicas)" in text
    assert "kafka-topics.sh" in page, "the report's advice about too few replicas"


def test_a_cluster_that_is_away_is_named_with_the_age_of_what_is_known(page: str) -> None:
    text = text_of(page)
    assert "oslo does not answer; it answered 10 min ago" in text
    assert "lag as of 2027-01-15 07:50:00 UTC, 10 min ago" in text
    assert "what is known is 10 min old" in text
    assert "rome was not asked yet" in text


def test_a_flow_that_is_latched_is_released_by_another_command_than_one_that_was_stopped() -> None:
    latch = Latch(role=Role.HELD, generation=1, reason="cutover", by="ann on ops-1", since_ms=NOW - 9_000)
    page = render([reading(replace(IN_ORDER, latch=latch))], CLUSTERS, NOW)
    assert "mirror release orders-paris-berlin</code>" in page
    assert "by ann on ops-1: cutover" in page
    assert "mirror stop --resume" not in page


def test_an_unknown_lag_is_no_small_one() -> None:
    unknown = flow("f", partition(0, UNKNOWN_LAG), run=None, state=None)
    text = text_of(render([reading(replace(unknown, away={"paris": "refused"}))], CLUSTERS, NOW))
    assert "its lag is not known" in text
    assert "caught up" not in text
    assert "lag \u2013 records" in text


def test_what_brokers_say_stays_text(page: str) -> None:
    assert "<script>alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script>") == 1, "the one that chooses the colours, whose hash the policy has"
    assert "script-src &#39;sha256-" in page


def test_the_title_says_whether_all_is_in_order() -> None:
    assert "<title>2 flows in order</title>" in render([reading(IN_ORDER), reading(BETWEEN_RUNS)], CLUSTERS, NOW)
    assert "<title>1 flow not read yet</title>" in render([reading(IN_ORDER), FLOWS[-1]], CLUSTERS, NOW)


def test_a_file_is_not_loaded_again() -> None:
    assert 'http-equiv="refresh"' not in render(FLOWS, CLUSTERS, NOW)


@pytest.mark.parametrize(
    ("found", "levels"),
    [
        (reading(IN_ORDER), []),
        (reading(BETWEEN_RUNS), []),
        (reading(GONE), ["critical"]),
        (reading(HELD), ["warning"]),
        (lost(IN_ORDER, 5_000), ["serious"]),
        (replace(reading(IN_ORDER), error="denied"), ["serious"]),
        (FlowReading(flow="f", source="a", target="b"), []),
        (replace(FlowReading(flow="f", source="a", target="b"), error="denied"), ["serious"]),
    ],
)
def test_only_a_flow_with_a_problem_needs_attention(found: FlowReading, levels: list[str]) -> None:
    assert [one.level.value for one in problems_of(found, NOW)] == levels


def test_problems_are_worst_first() -> None:
    levels = [one.level.value for one in problems_of(reading(IN_TROUBLE), NOW)]
    assert levels == sorted(levels, key=["critical", "serious", "warning", "note"].index)
    assert levels[0] == "critical"
