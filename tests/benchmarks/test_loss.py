"""What a loss has cost, computed from what clients have seen; and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.config.load import load
from tests.benchmarks.loss import accounting, page
from tests.benchmarks.loss.__main__ import FILE as LOSSES
from tests.benchmarks.loss.accounting import Exposure
from tests.benchmarks.wide_area import page as wide_area_page
from tests.benchmarks.wide_area.__main__ import COPIERS, Job, tuned
from tests.benchmarks.wide_area.__main__ import FILE as DISTANCES

EVENT = 100.0


def acknowledged(begin: float, end: float, step: float = 0.01) -> dict[int, float]:
    """A record each 10 ms, by number."""
    return {number: begin + number * step for number in range(round((end - begin) / step))}


def copied(acked: dict[int, float], delay: float = 0.02) -> Iterator[tuple[float, int]]:
    yield from ((at + delay, number) for number, at in acked.items())


def test_what_only_the_source_has() -> None:
    acked = acknowledged(95, 105)
    arrivals = [(at, number) for at, number in copied(acked) if acked[number] < 99.5]
    found = accounting.exposure(acked, arrivals, EVENT)
    assert found == Exposure(51, 0.5)
    assert accounting.exposure(acked, list(copied(acked, 0.0)), EVENT) == Exposure(0, 0.0)


def test_clients_that_are_served_all_the_time() -> None:
    acked = acknowledged(95, 130)
    assert accounting.unserved_until(acked, list(copied(acked)), EVENT, 129) == EVENT


def test_an_outage_ends_when_new_records_are_in_time_again() -> None:
    """Nothing comes for 7 s, then a backlog that takes 3 s more."""
    acked = acknowledged(95, 130)
    arrivals = [
        (max(at, 107 + 3 * (acked[number] - EVENT) / 10) if EVENT <= at < 110 else at, number)
        for at, number in copied(acked)
    ]
    served = accounting.unserved_until(acked, arrivals, EVENT, 129)
    assert served is not None
    # A record acknowledged at x comes at 107 + 0.3 (x - 100): within a second from 108.6 on.
    assert served == pytest.approx(108.6, abs=0.15)


def test_half_of_the_partitions_are_no_service() -> None:
    acked = acknowledged(95, 130)
    arrivals = [(at, number) for at, number in copied(acked) if number % 2 or at < EVENT]
    assert accounting.unserved_until(acked, arrivals, EVENT, 129) is None


def test_a_source_that_acknowledges_nothing_is_no_service() -> None:
    acked = {number: at for number, at in acknowledged(95, 130).items() if not EVENT <= at < 112}
    served = accounting.unserved_until(acked, list(copied(acked)), EVENT, 129)
    assert served == pytest.approx(112, abs=0.15)


def test_one_late_record_of_a_hundred_is_served() -> None:
    acked = acknowledged(95, 130)
    arrivals = [(at + (5 if number % 100 == 0 else 0), number) for number, at in enumerate(acked.values())]
    assert accounting.unserved_until(acked, arrivals, EVENT, 123) == EVENT


def test_what_is_missing_and_what_came_twice() -> None:
    acked = acknowledged(95, 105)
    arrivals = [(at, number) for at, number in copied(acked) if number != 700]
    arrivals += [(103.0, 10), (104.0, 10), (104.0, 11), (90.0, 12)]
    assert accounting.missing(acked, arrivals, EVENT, 110) == 1
    assert accounting.missing(acked, arrivals, EVENT, 101) == 0
    assert accounting.doubled(arrivals, EVENT) == 3


def test_where_a_group_begins_on_the_target() -> None:
    assert accounting.positions(range(50), range(40, 90), range(100)) == (10, 10)
    assert accounting.positions(range(50), range(60, 100), range(100)) == (0, 10)
    assert accounting.positions(range(50), range(50, 100), range(100)) == (0, 0)


def figures(**changed: Any) -> dict[str, Any]:
    return {"exposed": 40, "exposed_s": 0.1, "served_s": 3.0, "missing": 0, "doubled": 0} | changed


def results() -> dict[str, Any]:
    versions = dict.fromkeys(("kafka", "java", "python", "spark"), "1")
    machine = {"cores": 2, "cpu": "a CPU", "memory_gb": 24}
    measured = {"started": "2026-11-28T05:00", "commit": "c" * 40, "clean": True, "machine": machine}
    runs = [
        {"round": 1, "session": "processes", "copier": "mirror", "rate": 500, "found": {"driver": figures()}},
        {
            "round": 2,
            "session": "processes",
            "copier": "mirror",
            "rate": 500,
            "found": {"driver": figures(served_s=9.0, doubled=7)},
        },
        {
            "round": 1,
            "session": "processes",
            "copier": "spark",
            "rate": 500,
            "found": {"driver": figures(served_s=None)},
            "failed": "AssertionError: it ended",
        },
    ]
    return {"measured": measured | {"versions": versions}, "runs": runs}


def test_the_page_shows_the_worst_of_losses_and_hides_no_failure() -> None:
    text = page.page(results())
    driver = page.SCENARIOS["driver"]
    assert f"| {driver} | mirror | 2 | 40, 0.10 | 6.0 [3.0 to 9.0] |  | 0 | 7 |" in text
    assert f"| {driver} | plain Spark | 1 | 40, 0.10 | not within 330 s in 1 of 1 |" in text
    assert "- round 1, plain Spark, session processes: after driver: AssertionError: it ended" in text


def test_the_pages_say_what_was_measured() -> None:
    """It fails for an edit by hand, for a measurement that was not published, and for a page without one."""
    for written, results, page_of in (
        (page.PAGE, LOSSES, page.page),
        (wide_area_page.PAGE, DISTANCES, lambda found: wide_area_page.page(found, tuned())),
    ):
        assert written.exists() == results.exists()
        if results.exists():
            assert written.read_text("utf-8") == page_of(json.loads(results.read_text("utf-8")))


@pytest.mark.parametrize("copier", ["mirror", "mirror-tuned"])
def test_a_copy_over_a_wide_area_has_a_configuration_that_is_taken(copier: str, tmp_path: Path) -> None:
    """Otherwise it would only show after minutes, as a copier that does not begin."""
    COPIERS[copier](copier, Job("c1", "127.0.0.1:1", "127.0.0.1:2", tmp_path))
    assert [*load(tmp_path / "mirror.toml", environ={}).flows] == ["c1"]


@pytest.mark.cluster
@pytest.mark.timeout(480)
def test_a_worker_is_killed_and_a_link_is_cut() -> None:
    """The short form: one session of ours, by the program that writes the page."""
    from tests.benchmarks.loss.scenarios import play
    from tests.benchmarks.loss.site import site

    with site("mirror", 1, 200) as made:
        for name, least_s in (("worker", 0.0), ("target-cut", 30.0)):
            found = play(made, name)
            assert found is not None
            assert found["served_s"] is not None
            assert found["served_s"] >= least_s
            assert (found["missing"], found["doubled"]) == (0, 0)
