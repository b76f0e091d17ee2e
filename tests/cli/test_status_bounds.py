"""``mirror status --max-lag --max-age`` as a probe calls it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirror.relay.progress import status_values
from mirror.relay.progress.status_values import RunState
from mirror.spark.status import status_reader
from tests.spark import fakes
from tests.spark.flow_harness import UNREACHABLE_FLOW, configuration, use_fakes
from tests.spark.status_harness import T0, ReportedFlow

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000
EVER = "21000d"
"""More than fifty years: the records of the fake clusters have times of 1970."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportedFlow:
    use_fakes(monkeypatch)
    site = ReportedFlow(tmp_path)
    site.now_ms = T0
    site.use_topic(monkeypatch)

    class Clock:
        def unix_ms(self) -> int:
            return site.now_ms

        now = unix_ms

    monkeypatch.setattr(status_reader, "SystemClock", Clock)
    site.a.add_topic("orders", [100, 10])
    site.commit(10, 1)
    return site


def ended(site: ReportedFlow, ago_ms: int) -> None:
    state = RunState(run="r", state="ended", reason="complete", since_ms=T0 - ago_ms, complete_ms=T0 - ago_ms)
    site.report_value(status_values.RUN, state)


def test_a_flow_within_its_bounds_is_no_finding(site: ReportedFlow) -> None:
    site.commit(100)
    ended(site, HOUR)
    found = site.invoke("status", "--max-lag", "60s", "--max-age", "90m")
    assert (found.exit_code, found.stderr) == (0, "")
    assert "flow f: a to b; 0 behind" in found.stdout
    site.commit(99)
    assert site.invoke("status", "--max-lag", EVER).exit_code == 0, "the record is younger than that"


def test_each_broken_bound_is_in_the_line_of_its_flow(site: ReportedFlow) -> None:
    site.commit(40)
    ended(site, 2 * HOUR)
    found = site.invoke("status", "--max-lag", "60s", "--max-age", "90m")
    age = "its last success is 2 h ago, the bound is 1 h 30 min"
    lag = "60 records of 1 partition to copy, the oldest ones older than 1 min; most in orders-0"
    assert (found.exit_code, found.stderr) == (3, f"mirror: flow f: {age}; {lag}\n")
    document = json.loads(site.invoke("status", "--max-age", "90m", "--json").stdout)
    assert document["broken"] == {"f": age}
    assert "broken" not in json.loads(site.invoke("status", "--json").stdout)


def test_records_of_which_nothing_is_copied_are_late_and_an_unknown_lag_is_no_small_one(site: ReportedFlow) -> None:
    found = site.invoke("status", "--max-lag", "60s")
    assert (found.exit_code, "100 records of 1 partition to copy" in found.stderr) == (3, True)
    with site.a.change() as state:
        state["topics"]["orders"]["partitions"][0]["leader"] = -1
    found = site.invoke("status", "--max-lag", "60s")
    line = "mirror: flow f: the lag of 1 partition is not known, such as orders-0 (no leader)\n"
    assert (found.exit_code, found.stderr) == (3, line)


def test_a_flow_that_cannot_be_read_fails_the_probe_whatever_the_others_are(site: ReportedFlow) -> None:
    site.config.write_text(configuration() + UNREACHABLE_FLOW)
    found = site.invoke("status", "--max-lag", "60s", "--max-age", "1h")
    assert found.exit_code == 1
    assert "mirror: cluster gone does not answer" in found.stderr
    assert "mirror: flow f: its last success is not known; 100 records" in found.stderr
    fakes.Cluster("a:1").stop()
    site.config.write_text(configuration())
    assert site.invoke("status", "--max-lag", "60s").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--max-lag", "60"), "must be a whole number with its unit, such as 500ms"),
        (("--max-age", "1.5h"), "must be a whole number with its unit, such as 500ms"),
        (("--max-age", "1h", "--watch"), "cannot be combined with --watch"),
    ],
)
def test_wrong_bounds_are_refused(site: ReportedFlow, arguments: tuple[str, ...], line: str) -> None:
    found = site.invoke("status", *arguments)
    assert found.exit_code == 2
    assert line in " ".join(found.stderr.replace("│", " ").split())


def test_the_page_about_flows_is_written_to_a_file(site: ReportedFlow) -> None:
    site.config.write_text(configuration() + UNREACHABLE_FLOW)
    ended(site, HOUR)
    file = site.folder / "status.html"
    found = site.invoke("status", "--html", str(file), "--max-age", "90m")
    assert (found.exit_code, found.stdout) == (1, f"{file}\n")
    page = file.read_text()
    assert "<h2>f</h2>" in page
    assert "Cluster gone does not answer" in page
    assert "mirror run --flow f" not in page, "its last run was complete"
    assert 'http-equiv="refresh"' not in page
    assert site.invoke("status", "--html", str(file), "--json").exit_code == 2
    found = site.invoke("status", "--html", str(file / "status.html"))
    assert (found.exit_code, "cannot be written" in found.stderr) == (1, True)
