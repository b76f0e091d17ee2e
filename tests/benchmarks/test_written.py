"""What is said of the benchmarks is what was measured, word for word."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks import sample_results
from tests.benchmarks.side_by_side.figures import RESULTS, Results
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.statistics import ratio_of_medians
from tests.benchmarks.side_by_side.targets import TARGETS, findings
from tests.benchmarks.side_by_side.written import (
    BEGIN,
    END,
    README,
    RESULTS_MD,
    claims,
    readme_with,
    remarks,
    results_page,
)


def test_the_pages_say_what_was_measured() -> None:
    """Whoever edits them by hand, or measures without publishing, hears of it here."""
    results = Results.read()
    assert RESULTS_MD.read_text(encoding="utf-8") == results_page(results, remarks())
    readme = README.read_text(encoding="utf-8")
    assert readme == readme_with(readme, claims(results))
    for path in PICTURES.values():
        assert digest(RESULTS) in path.read_text(encoding="utf-8")


def test_a_missed_target_has_its_reason_and_nothing_else_has() -> None:
    missed = {one.target.key for one in findings(Results.read()) if one.missed}
    assert remarks().keys() >= missed, "say in remarks.json why"
    assert remarks().keys() <= {target.key for target in TARGETS}


def test_ratios_are_those_of_medians() -> None:
    found = {one.target.key: one for one in findings(Results.of(sample_results.results()))}
    assert found.keys() == {target.key for target in TARGETS}
    told = {key: one.ratio and round(one.ratio.ratio, 3) for key, one in found.items()}
    assert told == {
        "a-throughput": 3.0,
        "a-cpu": 0.333,
        "a-null": 0.9,
        "a-once": 0.95,
        "a-memory": 0.25,
        "b-throughput": 3.0,
        "b-cpu": 0.333,
        "b-all-cpu": 0.833,
        "e-throughput": 3.0,
        "g-throughput": 3.0,
        "h-throughput": 3.0,
        "f-idle": 1.0,
        "latency": 0.5,
    }
    assert [key for key, one in found.items() if one.missed] == ["a-cpu"]


def test_what_slows_a_whole_round_widens_no_interval() -> None:
    ours, theirs = {1: 1.0, 2: 2.0, 3: 4.0}, {1: 10.0, 2: 20.0, 3: 40.0, 4: 1.0}
    ratio = ratio_of_medians(ours, theirs)
    assert ratio is not None
    assert (ratio.ratio, ratio.low, ratio.high, ratio.rounds) == (0.1, 0.1, 0.1, 3)


def test_an_interval_over_the_bound_is_noise() -> None:
    document = sample_results.results("a")
    for run in document["runs"]:
        if run["copier"] == "mirror-exactly-once":
            run["copy_seconds"] *= (1.0, 1.0, 1.4)[run["round"] - 1]
    (found,) = [one for one in findings(Results.of(document)) if one.target.key == "a-throughput"]
    assert found.ratio is not None
    assert found.ratio.low < 2.5 < found.ratio.ratio
    assert found.verdict == "met, within the noise"


def test_what_failed_is_told_and_not_counted() -> None:
    document = sample_results.results("a")
    document["runs"][2] |= {"failed": "ended with exit status 1", "copy_seconds": None, "records": 0}
    results = Results.of(document)
    assert len(results.of_copier("a", document["runs"][2]["copier"])) == 2
    assert "MirrorMaker 2, tuned, round 1: ended with exit status 1" in results_page(results, {})


def test_what_was_not_measured_is_not_claimed() -> None:
    page = claims(Results.of(sample_results.results("a") | {"latency": [], "idle": []}))
    assert "(a) throughput" in page
    assert "(b)" not in page
    assert "latency" not in page


def test_a_copy_of_a_part_is_weighed_by_its_part() -> None:
    document = sample_results.results("a")
    whole, part = (Results.of(document).runs[6] for _ in range(2))
    document["runs"][6] |= {"records": 100_000, "copy_seconds": whole.copy_seconds / 10}
    part = Results.of(document).runs[6]
    assert part.megabytes_per_second == pytest.approx(whole.megabytes_per_second)


def test_the_readme_keeps_all_but_the_claims() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert readme_with(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="no place for the claims"):
        readme_with("before\nafter\n", "new")


@pytest.mark.parametrize("mode", PICTURES)
def test_the_picture_is_drawn(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    draw(Results.of(sample_results.results()), mode, path, "made from these")
    assert ET.fromstring(path.read_bytes()).tag.endswith("svg")  # noqa: S314 - our own
    assert "made from these" in path.read_text(encoding="utf-8")
