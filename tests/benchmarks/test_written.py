"""What is said of the benchmarks is what was measured, word for word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks import sample_results
from tests.benchmarks.side_by_side import publish as publishing
from tests.benchmarks.side_by_side.figures import Results, UnpublishableError
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.statistics import ratio_of_medians
from tests.benchmarks.side_by_side.targets import TARGETS, findings
from tests.benchmarks.side_by_side.verdicts import of_results, verdicts
from tests.benchmarks.side_by_side.written import (
    BEGIN,
    END,
    claims,
    pages,
    readme_with,
    remarks,
    results_page,
    summary,
)


def test_the_pages_say_what_was_measured() -> None:
    """It fails for an edit by hand, and for a measurement that was not published."""
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text
    for path in PICTURES.values():
        assert digest() in path.read_text(encoding="utf-8")


def test_a_missed_target_has_its_reason_and_nothing_else_has() -> None:
    missed = {one.target.key for one in findings(Results.read()) if one.missed}
    assert remarks().keys() >= missed, "say in remarks.json why"
    assert remarks().keys() <= {target.key for target in TARGETS}


def test_ratios_are_those_of_medians() -> None:
    found = {one.target.key: one for one in findings(Results.of(sample_results.results()))}
    assert found.keys() == {target.key for target in TARGETS}
    result = {key: one.ratio and round(one.ratio.ratio, 3) for key, one in found.items()}
    assert result == {
        "a-throughput": 3.0,
        "a-cpu": 0.333,
        "a-null": 0.9,
        "a-once": 0.95,
        "a-memory": 0.25,
        "b-throughput": 3.0,
        "b-cpu": 0.333,
        "b-all-cpu": 0.833,
        **dict.fromkeys((f"{workload}-throughput" for workload in "cdefghij"), 3.0),
        "j-cpu": 0.333,
        "j-whole-cpu": 4.25,
        "j-memory": 0.25,
        "f-idle": 1.0,
        "latency": 0.5,
        "recovery": 0.25,
        "groups-p99": 16.0,
        "groups-cpu": 1.0,
    }
    missed = ["a-cpu", "j-cpu", "j-whole-cpu", "groups-p99", "groups-cpu"]
    assert [key for key, one in found.items() if one.missed] == missed


def test_positions_of_groups_are_those_with_the_interval_that_both_have() -> None:
    document = sample_results.results("a")
    first = document["groups"][0]
    document["groups"] += [first | {"interval_ms": 10_000, "p99": 1.0}, {**first, "round": 2, "failed": "it ended"}]
    (found,) = [one for one in findings(Results.of(document)) if one.target.key == "groups-p99"]
    assert found.ratio is not None
    assert (found.ratio.ratio, found.ratio.rounds) == (16.0, 1)


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


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"failed": "exit status 1", "copy_seconds": None, "records": 0}, "failed: exit status 1"),
        ({"equal": False, "difference": "a-0 offset 7"}, "not equal to the source: a-0 offset 7"),
        ({"equal": None, "difference": "no answer"}, "not compared: no answer"),
    ],
)
def test_a_run_without_an_equal_copy_is_shown_and_not_counted(outcome: dict[str, Any], reason: str) -> None:
    document = sample_results.results("a")
    document["runs"][2] |= outcome
    results = Results.of(document)
    assert len(results.of_copier("a", document["runs"][2]["copier"])) == 2
    assert f"MirrorMaker 2, tuned, round 1: {reason}" in results_page(results, {})


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"missing": 44_441}, "44,441 records had not arrived at its end"),
        ({"failed": "no record"}, "failed: no record"),
    ],
)
def test_a_round_of_latency_with_missing_records_is_shown_and_not_counted(outcome: dict[str, Any], reason: str) -> None:
    document = sample_results.results("a")
    document["latency"][1] |= outcome
    results = Results.of(document)
    assert not [finding for finding in findings(results) if finding.target.key == "latency" and finding.ratio]
    label = "MirrorMaker 2, tuned for latency, exactly once"
    assert f"{label}, round 1, counts in no figure: {reason}" in results_page(results, {})


def test_a_section_whose_first_measurement_failed_is_shown_with_the_reason() -> None:
    document = sample_results.results("a")
    settings = ("copier", "round", "rate", "seconds", "groups", "partitions", "interval_ms")
    for name in ("latency", "recovery", "groups", "quiet", "losses", "loads"):
        first = document[name][0]
        document[name][0] = {key: first[key] for key in settings if key in first} | {"failed": f"{name} broke"}
    results = Results.of(document)
    page = results_page(results, {})
    assert claims([of_results("results.json", results)], results)
    assert all(f"failed: {name} broke" in page for name in ("latency", "recovery", "groups", "quiet", "losses"))


@pytest.mark.parametrize(
    "invocations",
    [
        [sample_results.invocation(), sample_results.invocation("f" * 40)],
        [sample_results.invocation(clean=False)],
    ],
    ids=["two commits", "changed files"],
)
def test_rows_of_anything_but_one_commit_are_not_published(invocations: list[dict[str, Any]]) -> None:
    with pytest.raises(UnpublishableError, match="measure again, on one commit"):
        Results.of(sample_results.results("a") | {"invocations": invocations})


def test_rows_that_cannot_be_published_replace_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published, new = tmp_path / "results.json", tmp_path / "unpublished.json"
    published.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(publishing, "RESULTS", published)
    monkeypatch.setattr(publishing, "publish", lambda: None)
    document = sample_results.results("a")
    new.write_text(json.dumps(document | {"invocations": [sample_results.invocation(clean=False)]}), encoding="utf-8")
    with pytest.raises(UnpublishableError):
        publishing.publish_new(new)
    assert published.read_text(encoding="utf-8") == "{}"
    assert new.exists()
    new.write_text(json.dumps(document), encoding="utf-8")
    publishing.publish_new(new)
    assert json.loads(published.read_text(encoding="utf-8")) == document
    assert not new.exists()
    publishing.publish_new(new)  # nothing is left, and it is called once more


def _claims_of(document: dict[str, Any]) -> str:
    results = Results.of(document)
    return claims([of_results("results.json", results)], results)


def _row(page: str, what: str) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {what} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_compares_the_whole_run_of_all_three() -> None:
    """A copy of a GB in 2 s after 5 s of start-up, beside one of 6 s and one of 12 s."""
    ours, theirs, plain, verdict, source = _row(_claims_of(sample_results.results()), "(a) MB/s, whole run")
    assert (ours, theirs, plain) == ("143", "90.9 (1.57 [1.57 to 1.89])", "58.8 (2.43 [2.43 to 3.22])")
    assert (verdict, source) == ("won", "1")


def test_what_is_lost_is_written_as_lost_and_what_is_within_the_noise_as_equal() -> None:
    document = sample_results.results()
    for run in document["runs"]:
        if run["copier"] == "mirrormaker-tuned":
            run |= {"whole_seconds": 3.0 if run["round"] == 1 else 30.0, "cpu_seconds": {"copying": 90.0}}
        if run["copier"] == "plain-spark":
            run["cpu_seconds"] = {"copying": 0.5}
    page = _claims_of(document)
    assert _row(page, "(a) MB/s, whole run")[3] == "equal: MirrorMaker 2; won: plain Spark"
    assert _row(page, "(a) CPU s a GB, whole run")[3] == "lost: plain Spark; won: MirrorMaker 2"


def test_the_page_compares_many_partitions_and_the_positions_of_groups_at_the_same_interval() -> None:
    document = sample_results.results("a")
    default = {"interval_ms": 10_000, "p99": 1.0, "round": 2}
    document["groups"].append(document["groups"][0] | default)
    document["loads"].append(document["loads"][0] | {"partitions": 4, "p50": 1.0, "round": 2})
    page = _claims_of(document)
    assert _row(page, "1,000 groups' positions, p99 ms")[:2] == ["16,000", "16,000 (1.00 (one round))"]
    assert _row(page, "1,000 partitions: p50 ms")[:4] == [
        "10.0",
        "40.0 (0.25 (one round))",
        "80.0 (0.125 (one round))",
        "won",
    ]


def test_what_is_earlier_is_shown_beside_its_commit() -> None:
    results, earlier = Results.of(sample_results.results("a")), Results.of(sample_results.results("b"))
    page = results_page(results, {}, {"earlier/some.json": earlier})
    before, after = page.split("## Measured apart: earlier/some.json")
    assert "## (a) " in before
    assert f"commit {sample_results.COMMIT[:12]}" in after
    assert "### (b) " in after


def test_a_larger_heap_of_mirrormaker_is_named_with_the_workload() -> None:
    document = sample_results.results("ah")
    document["workloads"]["h"]["mirrormaker_heap_gb"] = 6
    assert results_page(Results.of(document), {}).count("MirrorMaker 2 has a heap of 6 GB.") == 1


def test_counted_losses_have_no_noise() -> None:
    page = _claims_of(sample_results.results())
    assert _row(page, "records doubled by it, of 300,000")[:4] == [
        "0",
        "0",
        "52,000",
        "equal: MirrorMaker 2; won: plain Spark",
    ]
    assert _row(page, "with another timestamp")[:3] == ["0", "0", "6,600"]
    assert _row(page, "not kept of configurations, ACLs, groups")[:3] == ["0", "0", "3"]
    assert _row(page, "records that the group reads again")[:4] == ["0", "580", "", "won"]


def test_a_claim_is_of_the_file_that_has_most_sides() -> None:
    document = sample_results.results("a")
    two = document | {"runs": [run for run in document["runs"] if run["copier"] != "plain-spark"]}
    both = [of_results(name, Results.of(one)) for name, one in (("two.json", two), ("three.json", document))]
    (found,) = [verdict for verdict in verdicts(both) if verdict.claim.key == "a-rate"]
    assert found.source.file == "three.json"


def test_the_summary_is_part_of_the_page_and_shows_every_missed_target() -> None:
    results = Results.of(sample_results.results())
    sources = [of_results("results.json", results)]
    text, page = summary(sources, results), claims(sources, results)
    rows = [line for line in text.splitlines() if line.startswith(("| (", "| a "))]
    assert rows
    assert set(rows) <= set(page.splitlines())
    missed = [finding for finding in findings(results) if finding.missed]
    assert [finding.target.key for finding in missed] == ["a-cpu", "j-cpu", "j-whole-cpu", "groups-p99", "groups-cpu"]
    line = f"{missed[4].target.what}: 1.00, wanted at most 0.5."
    assert " ".join(text.split("Missed targets, ")[1].split()).endswith(line)


def test_what_was_not_measured_is_not_claimed() -> None:
    page = _claims_of(sample_results.results("a") | {"latency": [], "recovery": [], "idle": [], "losses": []})
    assert "(a) MB/s" in page
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
