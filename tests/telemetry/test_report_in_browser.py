"""The report in a real browser without a network: it opens with its curves, and an expiry is found and opened.

`make cluster` has what only concerns how it looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.telemetry.report.model import FlowReportData
from mirror.telemetry.report.page import render
from tests.browser import Browser, Page
from tests.telemetry import runs

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MADE_MS = runs.BEGAN_MS + 305_000
DETAIL = "document.getElementById('detail')"
ROWS = "[...document.querySelectorAll('.table tbody tr')].map((row) => row.dataset.part)"
FOUND = "document.querySelector('[data-caption=table]').textContent"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab without script errors and without network requests."""
    opened = browser.page()
    opened.size(1360, 900)
    yield opened
    assert (opened.errors, opened.asked) == ([], [])
    opened.close()


def written(folder: Path, name: str, *flows: FlowReportData) -> str:
    """The address of a report; made once."""
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_text(render(flows, MADE_MS), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def sick(folder: Path) -> str:
    return written(folder, "sick", runs.sick_run())


@pytest.fixture(scope="module")
def standing(browser: Browser, sick: str) -> Iterator[Page]:
    opened = browser.page()
    opened.size(1360, 900)
    opened.open(sick)
    yield opened
    opened.close()


@pytest.fixture
def shared(standing: Page) -> Iterator[Page]:
    """The sick run's report in a tab that tests share; each begins without a search and an open partition."""
    yield standing
    standing.value(
        "(() => { const search = document.querySelector('[data-search]'); search.value = '';"
        " search.dispatchEvent(new Event('input', {bubbles: true})); location.hash = ''; })()"
    )
    standing.wait(f"{DETAIL}.hidden")
    assert (standing.errors, standing.asked) == ([], [])


def first(selector: str) -> str:
    return f"document.querySelector({selector!r})"


def drawn(page: Page, chart: str) -> None:
    """A chart, drawn, in the middle of the window."""
    page.wait(f"{first(f'[data-chart={chart}]')}.dataset.drawn")
    page.value(f"{first(f'[data-chart={chart}]')}.scrollIntoView({{block: 'center'}})")


def mark(page: Page, chart: str, kind: str, number: int = 0) -> str:
    """One of a chart's marks on its curves: the element that is drawn for it."""
    shown = first(f"[data-chart={chart}]")
    at = page.value(f"{shown}.data.findIndex((trace) => trace.name === {kind!r})")
    assert at >= 0, f"there is no {kind} in the chart"
    uid = f"{shown}._fullData[{at}].uid"
    return f"{shown}.querySelectorAll('.scatterlayer .trace' + {uid} + ' .points path')[{number}]"


def fields(page: Page) -> dict[str, str]:
    """What the open entry of a partition's list says."""
    pairs = "[...document.querySelectorAll('.event.open dt')].map((dt) => [dt.textContent, dt.nextSibling.textContent])"
    found: dict[str, str] = page.value(f"Object.fromEntries({pairs})")
    return found


EXPIRY = {
    "time": "2026-11-20 22:04:56.100 UTC",
    "phase": "metadata",
    "cause": "no leader",
    "last error": "Produce to paris.orders-3: NOT_LEADER_OR_FOLLOWER (error 6)",
    "age": "2 min (120,041 ms)",
    "time queued": "1 min 28 s (88,012 ms)",
    "time in flight": "32.0 s (32,029 ms)",
    "attempts": "4",
    "records in the batch": "512",
    "first source offset": "927,488",
    "end offset (exclusive)": "928,000",
    "may have been written": "no",
}


def test_page_opens_with_all_curves(page: Page, sick: str) -> None:
    page.open(sick)
    assert page.value(f"{first('[data-ranges]')}.hidden"), "charts of an unhealthy run show the whole run"
    for chart in ("total", "lines", "slow"):
        page.wait(f"{first(f'[data-chart={chart}]')}.dataset.drawn")
    assert page.value("window.scrollY") == 0, "charts are drawn without scrolling"
    for chart in ("total", "lines", "slow"):
        drawn(page, chart)
    traces = f"[...{first('[data-chart=lines]')}.querySelectorAll('.scatterlayer .trace')]"
    lines = f"{traces}.filter((trace) => trace.querySelector('.js-line')?.getAttribute('d').length > 8).length"
    names = page.value(f"{first('[data-chart=lines]')}.data.map((trace) => trace.name)")
    assert names[-1] == "expiry", "expiries lie on top"
    marks = ("leader change", "retry", "gap", "fenced", "throttled", "expiry")
    assert set(names) > {"orders-3 (expired)", *marks}
    assert page.value(lines) == len(names) - len(marks), "each partition has a line of its own"
    assert page.value("document.querySelectorAll('.spark path.mark').length") == 2
    assert page.value(f"{first('[data-chart=slow]')}.querySelectorAll('.bars .point').length") > 20


@pytest.mark.cluster
def test_printing_draws_the_charts_first(page: Page, sick: str) -> None:
    page.open(sick)
    for chart in ("total", "lines", "slow"):
        node = first(f"[data-chart={chart}]")
        page.wait(f"{node}.dataset.drawn")
        page.value(f"(Plotly.purge({node}), delete {node}.dataset.drawn, {node}.clicks = false)")
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    assert page.value("document.querySelectorAll('[data-chart][data-drawn] .main-svg').length") >= 3


@pytest.mark.cluster
def test_ten_of_many_partitions_have_lines_and_the_others_share_two(page: Page, folder: Path) -> None:
    page.open(written(folder, "large", runs.large_run()))
    drawn(page, "lines")
    data = f"{first('[data-chart=lines]')}.data"
    lines = page.value(f"{data}.filter((trace) => trace.mode === 'lines').map((trace) => [trace.name, trace.line])")
    names = [name for name, _ in lines]
    assert names[0].startswith("the other ")
    assert [name.split(": ")[1] for name in names[:2]] == ["mean", "maximum"]
    assert len(names) == 12
    styles = [(line["color"], line.get("dash")) for _, line in lines[2:]]
    assert len(set(styles)) == 10, "no two lines have the same style"
    assert len(set(names)) == 12
    maximum = page.value(f"Math.max(...{data}[1].y)")
    assert 0 < page.value(f"Math.max(...{data}[0].y)") <= maximum


@pytest.mark.cluster
def test_charts_of_a_stream_show_its_catch_up(page: Page, folder: Path) -> None:
    """Four minutes of it in ten hours; both can be looked at."""
    page.open(written(folder, "stream", runs.long_stream()))
    drawn(page, "total")
    chart = first("[data-chart=total]")
    span_ms = f"(({chart}._fullLayout.xaxis.r2l({chart}.layout.xaxis.range[1]) - {runs.BEGAN_MS}))"
    assert page.value(span_ms) < 600_000
    shown = f"{chart}.data[0].y.filter((left) => left > 0).length"
    assert page.value(shown) > 100, "points of the way down"
    page.click(first("[data-range=all]"))
    page.wait(f"{span_ms} > 30_000_000")
    assert page.value(f"{first('[data-range=all]')}.getAttribute('aria-pressed')") == "true"


def test_expiry_is_found_and_opened_from_the_table(shared: Page) -> None:
    """From the table to its row, from there to the mark on the curve, from there to all that is known."""
    page = shared
    page.value("window.search = document.querySelector('[data-search]')")
    page.click("window.search")
    page.call("Input.insertText", text="ORDERS-3")
    assert page.value(ROWS) == ["orders-3"]
    page.click(first(".table tbody tr td.num"))
    page.wait("!document.getElementById('detail').hidden")
    drawn(page, "one")
    page.click(mark(page, "one", "expiry", 1))
    page.wait(first(".event.open"))
    assert fields(page) == EXPIRY
    page.click(first(".event:not(.open)[data-kind=expiry] button"))
    assert fields(page)["may have been written"] == "yes: its outcome is unknown"
    text = page.value(f"{DETAIL}.textContent")
    assert "kafka-topics.sh --bootstrap-server $TARGET --describe --unavailable-partitions" in text
    assert "51,000 to 939,000 (exclusive)" in text
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27)
    page.wait(f"{DETAIL}.hidden")
    assert page.value("location.hash") == ""


def test_expiry_is_opened_from_the_flow_charts(shared: Page) -> None:
    page = shared
    for chart in ("total", "lines"):
        drawn(page, chart)
        page.click(mark(page, chart, "expiry", 1))
        page.wait(first(".event.open"))
        assert fields(page) == EXPIRY
        assert page.value("location.hash") == "#paris-berlin:orders-3"
        page.click(first(".detail [data-close]"))
        page.wait(f"{DETAIL}.hidden")


def test_mark_has_an_entry_with_its_fields(shared: Page) -> None:
    page = shared
    page.value("location.hash = '#audit.log-0'")
    page.wait(f"!{DETAIL}.hidden")
    kinds = page.value("[...document.querySelectorAll('.event')].map((event) => event.dataset.kind)")
    assert kinds == ["mirror.throttled"] * 3
    page.click(first(".event button"))
    assert fields(page) == {"time": "2026-11-20 22:00:40.000 UTC", "throttled for": "12.2 s (12,200 ms)"}
    page.click(first(".event button"))
    assert page.value("document.querySelectorAll('.event.open').length") == 0


def test_fragment_opens_its_partition(page: Page, sick: str) -> None:
    page.open(f"{sick}#orders-3")
    assert page.value(f"{first('.detail h2')}.textContent") == "orders-3"
    page.value("location.hash = '#paris-berlin:clicks-0'")
    page.wait(f"{first('.detail h2')}.textContent === 'clicks-0'")
    page.value("history.back()")
    page.wait(f"{first('.detail h2')}.textContent === 'orders-3'")
    page.click(first(".detail [data-close]"))
    page.wait(f"{DETAIL}.hidden")
    page.value("location.hash = '#config-0'")
    page.wait(f"!{DETAIL}.hidden")
    assert "No curve" in page.value(f"{DETAIL}.textContent"), "there was nothing to copy"
    page.value("location.hash = '#no-such-1'")
    page.wait(f"{DETAIL}.hidden")


def test_page_with_two_thousand_partitions_opens_within_seconds(page: Page, folder: Path) -> None:
    seconds = page.open(written(folder, "large", runs.large_run()))
    assert seconds < 30, "it takes one on an idle machine"
    assert page.value(FOUND) == "2,000 partitions"
    assert len(page.value(ROWS)) == 100
    for chart in ("total", "lines", "slow"):
        drawn(page, chart)
    assert page.value(ROWS)[:3] == ["clicks-1", "orders-3", "payments-1"], "the sick come first"
    page.click(first(".more-rows button:last-child"))
    assert len(page.value(ROWS)) == 2_000
    _can_be_searched_filtered_and_sorted(page)


def _can_be_searched_filtered_and_sorted(page: Page) -> None:
    page.click(first(".chip[data-outcome=complete]"))
    assert page.value(FOUND) == "1,997 of 2,000 partitions"
    page.click(first("[data-search]"))
    page.call("Input.insertText", text="devices.07")
    assert page.value(FOUND) == "50 of 2,000 partitions"
    page.click(first("th[data-key=name] button"))
    assert page.value(ROWS) == [f"devices.07-{number}" for number in range(50)], "2 comes before 10"
    page.click(first("th[data-key=records] button"))
    records = page.value("[...document.querySelectorAll('.table tbody tr')].map((row) => row.cells[3].textContent)")
    numbers = [int(each.replace(",", "")) for each in records]
    assert numbers == sorted(numbers, reverse=True)
    assert page.value(f"{first('th[aria-sort]')}.dataset.key") == "records"


@pytest.mark.cluster
def test_ways_have_a_column_only_if_the_flow_does_not_say_them(page: Page, folder: Path) -> None:
    young = replace(runs.healthy(0), way="sequences", way_reason="records are younger than 12 h")
    old = replace(runs.healthy(1), way="transactions", way_reason="records are older than 12 h")
    page.open(written(folder, "young", runs.view([young])))
    assert not page.value("!!document.querySelector('th[data-key=way]')")
    page.open(written(folder, "ways", runs.view([young, old])))
    page.click(first("th[data-key=way] button"))
    cells = "[...document.querySelectorAll('.table tbody tr')].map((row) => row.lastChild.textContent)"
    assert page.value(cells) == ["transactions", "sequences"]
    page.click(first(".table tbody tr a"))
    page.wait(f"!{DETAIL}.hidden")
    assert "transactions: records are older than 12 h" in page.value(f"{DETAIL}.textContent")


def lightness(page: Page, selector: str, what: str = "backgroundColor") -> float:
    numbers = re.findall(r"[\d.]+", page.value(f"getComputedStyle({first(selector)}).{what}"))
    return sum(map(float, numbers[:3])) / 3


@pytest.mark.cluster
def test_page_has_light_and_dark_colours(page: Page, sick: str) -> None:
    page.prefers("light")
    page.open(sick)
    drawn(page, "total")
    axis = "[data-chart=total] .xtick text"
    assert lightness(page, "body") > 200
    assert lightness(page, axis, "fill") < 140
    page.prefers("dark")
    page.wait("document.documentElement.dataset.theme === 'dark'")
    assert lightness(page, "body") < 50
    page.wait(f"parseFloat(getComputedStyle({first(axis)}).fill.slice(4)) > 130")
    page.click(first("#theme [data-theme=light]"))
    assert lightness(page, "body") > 200
    page.open(sick)
    assert lightness(page, "body") > 200, "the choice is remembered"
    page.click(first("#theme [data-theme=auto]"))
    assert lightness(page, "body") < 50


def test_hostile_texts_run_no_script(page: Page, folder: Path) -> None:
    page.open(written(folder, "hostile", runs.hostile_run()))
    for chart in ("total", "lines", "slow"):
        drawn(page, chart)
    page.click(first(".table tbody tr td.num"))
    page.wait(f"!{DETAIL}.hidden")
    for button in range(page.value("document.querySelectorAll('.event').length")):
        page.click(f"document.querySelectorAll('.event button')[{button}]")
        assert runs.HOSTILE in fields(page).values()
    assert page.value("typeof window.hacked") == "undefined"
    assert page.value("document.querySelectorAll('img').length") == 0
    assert runs.HOSTILE in page.value(f"{DETAIL}.textContent")


def test_groups_that_are_not_in_step_are_listed_as_text(page: Page, folder: Path) -> None:
    page.size(420, 800)
    page.open(written(folder, "groups", runs.view([runs.healthy()], groups=runs.groups())))
    rows = "[...document.querySelectorAll('.groups tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    assert page.value(rows) == [
        ["g0", "not-copied-yet", "3 min 5 s", "orders-0"],
        ["g1", "not-copied-yet", "3 min 4 s", "orders-1"],
        [runs.HOSTILE, "not-copied-yet", "3 min 4 s", "orders-2"],
    ]
    assert page.value("typeof window.hacked") == "undefined"
    assert page.value("document.documentElement.scrollWidth") <= 420


def test_flows_are_switched(page: Page, folder: Path) -> None:
    other = runs.view([runs.healthy()], flow="back", outcome=Outcome.COMPLETE)
    page.open(written(folder, "two", runs.sick_run(), other))
    assert page.value("[...document.querySelectorAll('section.flow')].map((each) => each.hidden)") == [False, True]
    page.click(first("#flows [data-flow='1']"))
    assert page.value("[...document.querySelectorAll('section.flow')].map((each) => each.hidden)") == [True, False]
    page.wait(f"{first('#flow-1 [data-chart=total]')}.dataset.drawn")
    page.value("location.hash = '#paris-berlin:orders-3'")
    page.wait(f"!{DETAIL}.hidden && !{first('#flow-0')}.hidden")


@pytest.mark.cluster
def test_page_fits_a_narrow_window(page: Page, sick: str) -> None:
    page.size(420, 800)
    page.open(sick)
    assert page.value("document.documentElement.scrollWidth") <= 420
    page.value("location.hash = '#orders-3'")
    page.wait(f"!{DETAIL}.hidden")
    drawn(page, "one")
    assert page.value(f"{DETAIL}.scrollWidth") <= 420
