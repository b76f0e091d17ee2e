"""What a loss has cost, computed from what clients have seen; and its page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.config.load import load
from tests.benchmarks import sample_results
from tests.benchmarks.loss import accounting, page
from tests.benchmarks.loss.__main__ import FILE as LOSSES
from tests.benchmarks.loss.accounting import Exposure
from tests.benchmarks.side_by_side.figures import Results
from tests.benchmarks.side_by_side.verdicts import MIRRORMAKER, OURS, PLAIN, Verdict, of_loss, of_wide_area, verdicts
from tests.benchmarks.side_by_side.written import claims
from tests.benchmarks.wide_area import page as wide_area_page
from tests.benchmarks.wide_area.__main__ import COPIERS, Job, tuned
from tests.benchmarks.wide_area.__main__ import FILE as DISTANCES

EVENT = 100.0


def acknowledged(begin: float, end: float, step: float = 0.01) -> dict[int, float]:
    """A record each 10 ms, by number."""
    return {number: begin + number * step for number in range(round((end - begin) / step))}


def copied(acked: dict[int, float], delay: float = 0.02) -> Iterator[tuple[float, int]]:
    yield from ((at + delay, number) for number, at in acked.items())


def served_since(acked: dict[int, float], arrivals: Iterable[tuple[float, int]], until: float) -> float | None:
    return accounting.unserved_until(acked, accounting.firsts(arrivals), EVENT, until)


def test_what_only_the_source_has() -> None:
    acked = acknowledged(95, 105)
    arrivals = [(at, number) for at, number in copied(acked) if acked[number] < 99.5]
    found = accounting.exposure(acked, arrivals, EVENT)
    assert found == Exposure(51, 0.5)
    assert accounting.exposure(acked, list(copied(acked, 0.0)), EVENT) == Exposure(0, 0.0)


def test_clients_that_are_served_all_the_time() -> None:
    acked = acknowledged(95, 130)
    assert served_since(acked, copied(acked), 129) == EVENT


def test_an_outage_ends_when_new_records_are_in_time_again() -> None:
    """Nothing comes for 7 s, then a backlog that takes 3 s more."""
    acked = acknowledged(95, 130)
    arrivals = [
        (max(at, 107 + 3 * (acked[number] - EVENT) / 10) if EVENT <= at < 110 else at, number)
        for at, number in copied(acked)
    ]
    served = served_since(acked, arrivals, 129)
    assert served is not None
    # A record acknowledged at x comes at 107 + 0.3 (x - 100): within a second from 108.6 on.
    assert served == pytest.approx(108.6, abs=0.15)


def test_half_of_the_partitions_are_no_service() -> None:
    acked = acknowledged(95, 130)
    arrivals = [(at, number) for at, number in copied(acked) if number % 2 or at < EVENT]
    assert served_since(acked, arrivals, 129) is None


def test_a_source_that_acknowledges_nothing_is_no_service() -> None:
    acked = {number: at for number, at in acknowledged(95, 130).items() if not EVENT <= at < 112}
    served = served_since(acked, copied(acked), 129)
    assert served == pytest.approx(112, abs=0.15)


def test_one_late_record_of_a_hundred_is_served() -> None:
    acked = acknowledged(95, 130)
    arrivals = [(at + (5 if number % 100 == 0 else 0), number) for number, at in enumerate(acked.values())]
    assert served_since(acked, arrivals, 123) == EVENT


def test_a_record_that_comes_again_has_come_in_time() -> None:
    acked = acknowledged(95, 130)
    arrivals = [*copied(acked), *((at + 20, number) for number, at in acked.items())]
    assert served_since(acked, arrivals, 129) == EVENT


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


def steps(*states: str) -> list[dict[str, Any]]:
    return [{"state": state, "at_ms": 1_000 * number} for number, state in enumerate(states, 1)]


def test_steps_are_those_of_the_last_attempt_and_a_step_that_is_taken_twice_counts_twice() -> None:
    assert accounting.steps_s(steps("planned", "ready", "moved", "OPEN"), -500) == {
        "planned": 1.5,
        "ready": 1.0,
        "moved": 1.0,
        "OPEN": 1.0,
    }
    again = steps("planned", "ready", "rolled-back", "planned", "proved", "moved", "proved", "moved", "OPEN")
    assert accounting.steps_s(again) == {"proved": 2.0, "moved": 2.0, "OPEN": 1.0}


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
    assert f"| {driver} | plain Spark | 1 | 40, 0.10 | not within 240 s in 1 of 1 |" in text
    assert "- round 1, plain Spark, session processes: after driver: AssertionError: it ended" in text


def test_the_page_shows_a_failover_by_step() -> None:
    found = results()
    moved = {"writes_s": 2.0, "read_again": 3, "skipped": 0, "commands": 2, "steps_s": {"planned": 1.5, "moved": 14.0}}
    (run, other) = ({"round": number, "copier": "mirror", "session": "disaster", "rate": 500} for number in (1, 2))
    found["runs"] += [run | {"found": {"source-lost": figures() | moved}}]
    found["runs"] += [other | {"found": {"source-lost": figures() | moved | {"steps_s": {"planned": 2.5}}}}]
    text = " ".join(page.page(found).split())
    shown = "`planned` 2.0 [1.5 to 2.5], `moved` 14.0; it was refused 2 times at first, and repeated."
    assert f"- {page.SCENARIOS['source-lost']}: {shown}" in text


def test_the_pages_say_what_was_measured() -> None:
    """It fails for an edit by hand, for a measurement that was not published, and for a page without one."""
    for written, results, page_of in (
        (page.PAGE, LOSSES, page.page),
        (wide_area_page.PAGE, DISTANCES, lambda found: wide_area_page.page(found, tuned())),
    ):
        assert written.exists() == results.exists()
        if results.exists():
            assert written.read_text("utf-8") == page_of(json.loads(results.read_text("utf-8")))


def verdict_of(document: dict[str, Any], key: str) -> Verdict:
    (found,) = (one for one in verdicts([of_loss("loss/results.json", document)]) if one.claim.key == key)
    return found


def losses(copier: str, number: int, **found: dict[str, Any]) -> dict[str, Any]:
    scenarios = {name.replace("_", "-"): one for name, one in found.items()}
    return {"round": number, "session": "any", "copier": copier, "rate": 500, "found": scenarios}


def test_clients_that_are_not_served_in_time_have_lost_against_any_time() -> None:
    document = results() | {"runs": [losses("mirror", 1, driver=figures()), losses("spark", 1, driver=figures())]}
    document["runs"] += [losses("mirrormaker", 1, driver=figures(served_s=None))]
    found = verdict_of(document, "loss-driver")
    assert found.medians == {OURS: 3.0, PLAIN: 3.0, MIRRORMAKER: math.inf}
    assert found.ratios.keys() == {PLAIN}
    assert found.said == "equal: plain Spark; won: MirrorMaker 2"
    page_of_all = claims([of_loss("loss/results.json", document)], Results.of(sample_results.results()))
    assert "| 3.00 | not in time | 3.00 (1.00 (one round)) |" in page_of_all


def test_records_are_counted_over_the_losses_that_all_sides_have() -> None:
    """Otherwise a copier would win by a session that it did not end."""
    moved = {"read_again": 4, "skipped": 1}
    of_ours = {"worker": figures(doubled=5), "driver": figures(missing=1), "source_lost": figures(missing=30) | moved}
    ours = losses("mirror", 1, **of_ours)
    theirs = [losses("mirrormaker", 1, driver=figures(doubled=2))]
    theirs += [losses("mirrormaker", 1, source_lost=figures() | moved, cut_over=figures() | moved)]
    document = results() | {"runs": [ours, *theirs]}
    assert verdict_of(document, "loss-doubled").medians == {OURS: 0, MIRRORMAKER: 2}
    assert verdict_of(document, "loss-missing").medians == {OURS: 1, MIRRORMAKER: 0}
    assert verdict_of(document, "loss-moved").medians == {OURS: 5, MIRRORMAKER: 5}
    records = verdict_of(document, "loss-records")
    assert (records.medians, records.ratios) == ({OURS: 30, MIRRORMAKER: 0}, {})
    assert records.said == "lost"


def test_the_part_of_a_link_is_that_of_the_lossy_line_with_all_tuned() -> None:
    case = {"round": 1, "line": "lossy", "place": "push", "brokers": "tuned", "seconds": 25}
    runs = [case | {"copier": "mirror-tuned", "used": 0.9}, case | {"copier": "mirrormaker-tuned", "used": 0.6}]
    runs += [case | {"copier": "mirror", "used": 0.1}, case | {"line": "clean", "copier": "mirror-tuned", "used": 0.2}]
    runs += [case | {"place": "pull", "copier": "mirror-tuned", "failed": "AssertionError: it ended"}]
    (found,) = verdicts([of_wide_area("wide_area/results.json", results() | {"runs": runs})])
    assert (found.claim.key, found.medians, found.said) == ("link-push", {OURS: 0.9, MIRRORMAKER: 0.6}, "won")


@pytest.mark.parametrize("copier", ["mirror", "mirror-tuned"])
def test_a_copy_over_a_wide_area_has_a_configuration_that_is_taken(copier: str, tmp_path: Path) -> None:
    """Otherwise it would only show after minutes, as a copier that does not begin."""
    COPIERS[copier](copier, Job("c1", "127.0.0.1:1", "127.0.0.1:2", tmp_path))
    assert [*load(tmp_path / "mirror.toml", environ={}).flows] == ["c1"]


@pytest.mark.cluster
@pytest.mark.timeout(480)
def test_a_worker_is_killed_and_a_link_is_cut() -> None:
    """The short form: one session of ours, by the program that writes the page."""
    from tests.benchmarks.loss.scenarios import CUT_S, play
    from tests.benchmarks.loss.site import site

    with site("mirror", 1, 200) as made:
        # A record that is acknowledged shortly before the link heals may be in time.
        for name, least_s in (("worker", 0.0), ("target-cut", CUT_S - accounting.LATE_S)):
            found = play(made, name)
            assert found is not None
            assert found["served_s"] is not None
            assert found["served_s"] >= least_s
            assert (found["missing"], found["doubled"]) == (0, 0)
