from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from mirror.sandbox.cluster import Cluster
from tests.benchmarks import sample_results
from tests.benchmarks.bench_recovery import recovery
from tests.benchmarks.side_by_side import filling, mirrormaker_settings, results, stock
from tests.benchmarks.side_by_side.__main__ import SECTIONS, asked, line, main
from tests.benchmarks.side_by_side.copiers import COPIER
from tests.benchmarks.side_by_side.metering import Meter, Sample, at, figures
from tests.benchmarks.side_by_side.results import MEASURED, OtherCommitError, Results, begin, differences, is_done
from tests.benchmarks.side_by_side.running import Pair, last_line, run
from tests.benchmarks.side_by_side.sections import sections, turns
from tests.benchmarks.side_by_side.watching import READ_AGAIN_S, Window
from tests.benchmarks.side_by_side.workloads import COPIERS, PEERS, PLAIN, WORKLOADS, Workload, order

A, E = WORKLOADS["a"], WORKLOADS["e"]


@pytest.fixture(autouse=True)
def nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long measurements took is read from the published file, too, whose figures change."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "published.json")


# --- who runs when


def test_the_first_round_has_all_copiers_and_each_later_one_begins_elsewhere() -> None:
    rounds = [order(A, COPIERS, number, 5) for number in (1, 2, 3)]
    assert sorted(rounds[0]) == sorted(COPIERS)
    assert sorted(rounds[1]) == sorted(rounds[2])
    assert PEERS < set(rounds[1]) < set(COPIERS)
    assert len({one[0] for one in rounds}) == 3


def test_the_claims_are_of_five_rounds_of_the_peers_and_all_else_of_three() -> None:
    assert {key for key, workload in WORKLOADS.items() if order(workload, COPIERS, 5, 5)} == {"a", "b", "h", "j"}
    assert all(set(order(WORKLOADS[key], COPIERS, 5, 5)) == PEERS for key in "abhj")
    assert all(set(order(WORKLOADS[key], COPIERS, 3, 5)) >= PEERS for key in WORKLOADS)
    assert {"plain-spark", "null-copier"} <= set(order(A, COPIERS, 3, 5))


def test_streams_take_turns_in_opposite_orders() -> None:
    latency = sections(1.0)["latency"]
    planned = [(number, case.copier) for number, case in turns(latency, 9)]
    first, second, last = ([copier for number, copier in planned if number == wanted] for wanted in (1, 2, 5))
    assert first == second[::-1]
    assert "plain-spark-real-time" in first
    assert set(last) == {"mirror-exactly-once", "mirrormaker-low-latency"}
    assert len(planned) == len({*planned}) == 3 * len(first) + 2 * len(last)
    assert [number for number, _ in turns(latency, 1)] == [1] * len(first)


def test_the_copiers_of_a_load_are_measured_one_after_the_other() -> None:
    for number in (1, 2, 3):
        loads = [case.entry["partitions"] for found, case in turns(sections(1.0)["loads"], 3) if found == number]
        assert sorted(loads, reverse=number == 2) == loads


def test_only_the_peers_take_part_in_later_rounds_of_other_workloads() -> None:
    assert set(order(WORKLOADS["d"], COPIERS, 1, 3)) == set(COPIERS)
    assert set(order(WORKLOADS["d"], COPIERS, 2, 3)) == PEERS


def test_the_large_copy_is_measured_of_the_peers_and_compared_in_its_first_round() -> None:
    large = WORKLOADS["j"]
    assert set(order(large, COPIERS, 1, 5)) == {*PEERS, "plain-spark"}
    assert set(order(large, COPIERS, 5, 5)) == PEERS
    assert [large.compares(number) for number in (1, 2, 5)] == [True, False, False]
    assert all(WORKLOADS[key].compares(5) for key in "abcdefghi")


def test_a_copier_that_cannot_take_batches_with_gaps_is_left_out_with_the_reason() -> None:
    assert "null-copier" not in order(E, COPIERS, 1, 3)
    assert all(E.left_out.values())


def test_the_command_line_keeps_the_order_of_workloads_and_copiers() -> None:
    result = asked(["--workload", "b", "--workload", "a", "--copier", "null-copier", "--copier", "mirror-exactly-once"])
    assert (result.sections, result.copiers) == (("a", "b"), ("mirror-exactly-once", "null-copier"))
    assert asked([]).sections == SECTIONS
    assert not asked([]).late
    assert asked(["--within", "-1"]).late


# --- the window of a copy


class Target:
    """Which partitions' last records would be found, and who was asked for."""

    def __init__(self) -> None:
        self.shown: set[int] = set()
        self.asked: list[set[int]] = []

    def __call__(self, stable: Mapping[int, int]) -> set[int]:
        self.asked.append(set(stable))
        return self.shown & set(stable)


def test_a_copy_begins_with_the_first_record_of_any_partition() -> None:
    window = Window({0: 10, 1: 10}, Target())
    window.begins(1.0, {0: 0, 1: 0})
    window.begins(1.5, {0: 1, 1: 0})  # the marker of a fence
    assert window.first is None
    window.begins(2.0, {0: 0, 1: 3})
    window.begins(3.0, {0: 5, 1: 3})
    assert window.first == 2.0


def test_a_copy_is_done_when_the_last_partitions_last_record_is_visible() -> None:
    target = Target()
    window = Window({0: 10, 1: 10, 2: 0}, target)
    target.shown = {0, 1}
    window.ends(1.0, {0: 10, 1: 9, 2: 0})
    window.ends(2.0, {0: 12, 1: 9, 2: 0})
    assert (target.asked, window.missing) == ([], 2), "nothing is read while a partition has less than its records"
    window.ends(3.0, {0: 12, 1: 11, 2: 0})
    assert target.asked == [{0, 1}], "a partition without records is never read"
    assert window.done == 3.0


def test_a_partition_is_done_when_its_end_was_first_seen_not_when_it_was_read() -> None:
    target = Target()
    window = Window({0: 10, 1: 10}, target)
    target.shown = {0}
    window.ends(1.0, {0: 10, 1: 10})
    target.shown = {0, 1}
    window.ends(1.0 + READ_AGAIN_S / 2, {0: 10, 1: 11})
    assert window.missing == 1
    window.ends(1.0 + 2 * READ_AGAIN_S, {0: 10, 1: 11})
    assert window.done == 1.0 + READ_AGAIN_S / 2


def test_markers_make_no_copy_done_before_its_last_record_is_committed() -> None:
    target = Target()
    window = Window({0: 10}, target)
    window.ends(1.0, {0: 11})  # nine records and two markers
    assert (window.done, len(target.asked)) == (None, 1)
    target.shown = {0}
    window.ends(2.0, {0: 13})
    assert window.done == 2.0


def test_a_reading_that_came_to_nothing_is_done_again_and_the_end_is_still_when_it_was_first_seen() -> None:
    target = Target()
    window = Window({0: 10}, target)
    window.ends(1.0, {0: 10})
    target.shown = {0}
    window.ends(1.0 + READ_AGAIN_S, {0: 10})
    assert (window.done, len(target.asked)) == (1.0, 2)


def test_last_records_are_not_read_at_every_observation() -> None:
    target = Target()
    window = Window({0: 10}, target)
    window.ends(1.0, {0: 10})
    window.ends(1.0 + READ_AGAIN_S / 2, {0: 11})
    assert len(target.asked) == 1
    window.ends(1.0 + READ_AGAIN_S, {0: 11})
    assert len(target.asked) == 2


# --- recovery


def test_a_stream_has_recovered_when_each_partition_is_current_behind_the_longest_pause() -> None:
    arrivals = [(9.0, 0, 5.0), (10.1, 1, 5.0), (16.0, 0, 6_000.0), (16.5, 0, 900.0), (17.0, 1, 1_000.0)]
    assert recovery(arrivals, killed=10.0, partitions=2) is None, "a record of partition 1 is a second old"
    assert recovery([*arrivals, (17.5, 1, 10.0)], killed=10.0, partitions=2) == (6.0, 7.5)


def test_records_of_the_killed_processes_are_no_recovery() -> None:
    assert recovery([(10.1, 0, 5.0), (10.2, 0, 5.0)], killed=10.0, partitions=2) is None
    assert recovery([], killed=10.0, partitions=1) is None


# --- CPU and memory


def test_the_cpu_of_a_copying_process_that_ends_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends has no command line for a moment, by which its role is known."""
    command = [sys.executable, "-c", "input()", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL):
        meter = Meter(os.getpid(), {}, roles=True)
        assert "copying" in meter.take_sample().cpu
        monkeypatch.setattr(psutil.Process, "cmdline", lambda _: [])
        assert "copying" in meter.take_sample().cpu


def test_cpu_and_memory_of_a_window_come_from_the_samples_around_it() -> None:
    def sample(at: float, cpu: dict[str, float], resident: dict[str, int]) -> Sample:
        return Sample(at, cpu, resident, {"source": at, "target": 2 * at})

    samples = [
        sample(10.0, {"copying": 0.0}, {"copying": 5_000_000}),
        sample(11.0, {"copying": 1.0, "spark": 4.0}, {"copying": 9_000_000, "spark": 1_000_000}),
        sample(12.0, {"copying": 3.0, "spark": 4.0}, {"copying": 2_000_000, "spark": 7_000_000}),
    ]
    assert at(samples, "cpu", "copying", 11.5) == 2.0
    assert at(samples, "cpu", "copying", 99.0) == 3.0
    result = figures(samples, first=10.5, done=11.5, end=12.0)
    assert result == {
        "cpu_seconds": {"copying": 3.0, "spark": 4.0},
        "cpu_seconds_copying": {"copying": 1.5, "spark": 2.0},
        "broker_cpu_seconds": {"source": 1.0, "target": 2.0},
        "peak_rss_mb": {"copying": 9.0, "spark": 7.0, "all": 10.0},
        "peak_pss_mb": {"copying": 0.0, "spark": 0.0, "all": 0.0},
    }


# --- MirrorMaker's settings


def _settings(copier: str, *, transactional: bool = False) -> dict[str, str]:
    return mirrormaker_settings.settings(
        copier,
        "one:1",
        "two:2",
        alias="r7",
        topic="orders",
        codec="lz4",
        partitions=4,
        replicas=3,
        transactional=transactional,
    )


def test_mirrormaker_by_default_has_nothing_but_where_and_what() -> None:
    found = _settings(mirrormaker_settings.DEFAULT, transactional=True)
    assert (found["clusters"], found["r7.bootstrap.servers"], found["target.bootstrap.servers"]) == (
        "r7, target",
        "one:1",
        "two:2",
    )
    assert (found["r7->target.enabled"], found["r7->target.topics"], found["tasks.max"]) == ("true", "orders", "1")
    assert not [key for key in found if ".producer." in key or ".consumer." in key or key.startswith("a")]
    assert found["offset.storage.replication.factor"] == "3"


def test_mirrormaker_tuned_has_large_batches_of_the_sources_codec_and_a_task_each_partition() -> None:
    found = _settings(mirrormaker_settings.TUNED)
    wanted = {
        "tasks.max": "4",
        "target.producer.batch.size": "262144",
        "target.producer.linger.ms": "20",
        "target.producer.compression.type": "lz4",
        "r7.consumer.max.partition.fetch.bytes": "4194304",
    }
    assert wanted.items() <= found.items()
    assert "r7.consumer.isolation.level" not in found
    aborted = _settings(mirrormaker_settings.TUNED, transactional=True)
    assert aborted["r7.consumer.isolation.level"] == "read_committed"


def test_mirrormaker_exactly_once_is_tuned_as_well() -> None:
    found, tuned = (_settings(name) for name in (mirrormaker_settings.EXACTLY_ONCE, mirrormaker_settings.TUNED))
    assert tuned.items() <= found.items()
    assert found["target.exactly.once.source.support"] == "enabled"
    assert found["r7.consumer.isolation.level"] == "read_committed"


# --- the data


def test_events_are_the_same_for_the_same_seed_each_with_a_value_of_its_own() -> None:
    small = [Workload("s", "", 300, size) for size in (100, 1_000)]
    for workload in small:
        first, again, other = (list(filling.events(workload, seed)) for seed in (5, 5, 6))
        assert [event[:3] for event in first] == [event[:3] for event in again] != [event[:3] for event in other]
        assert len({value for _, value, _, _ in first}) == 300
        assert all(workload.value_bytes <= len(value) < workload.value_bytes * 1.1 for _, value, _, _ in first)
        json.loads(first[0][1])


def test_newest_record_is_as_old_as_the_workload_says() -> None:
    for age_ms in (0, 86_400_000):
        before_ms = time.time() * 1_000
        newest_ms = max(event[3] for event in filling.events(Workload("s", "", 300, 1_000, age_ms=age_ms), 5))
        assert -10 <= newest_ms + age_ms - before_ms <= 60_000


def test_a_log_is_cleaned_when_all_but_its_last_segment_is(tmp_path: Path) -> None:
    for number, bases in enumerate([(0, 500), (0, 300, 700)]):
        (tmp_path / f"t-{number}").mkdir()
        for base in bases:
            (tmp_path / f"t-{number}" / f"{base:020d}.log").touch()
    assert not filling.cleaned(tmp_path, "t", 2)
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\nt 0 500\nt 1 300\n", encoding="ascii")
    assert not filling.cleaned(tmp_path, "t", 2)
    checkpoint.write_text("0\n2\nt 0 500\nt 1 700\n", encoding="ascii")
    assert filling.cleaned(tmp_path, "t", 2)


# --- the results file


def _run(copier: str = "null-copier", number: int = 1, **values: Any) -> dict[str, Any]:
    return {"workload": "a", "copier": copier, "round": number, "failed": None, "equal": None, **values}


def test_results_are_written_after_every_run_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = Results(path, sample_results.invocation(), replace=False)
    first.workload("a", {"title": "x"})
    first.add("runs", _run())
    first.add("runs", _run(number=2, failed="no answer"))
    first.add("latency", {"copier": "mirror-exactly-once", "round": 1, "p50": 20.0})
    assert not list(tmp_path.glob("*.new"))
    later = Results(path, sample_results.invocation(), replace=True)
    assert later.document["runs"] == json.loads(path.read_text(encoding="utf-8"))["runs"], "its own rows stay"
    assert later.has("runs", workload="a", copier="null-copier", round=1)
    assert not later.has("runs", workload="a", copier="null-copier", round=2), "a failed run is tried again"
    assert later.has("latency", copier="mirror-exactly-once", round=1)
    assert not later.has("latency", copier="mirror-exactly-once", round=1, seconds=80.0)
    later.add("runs", _run(number=2))
    kept = [(run["round"], run["failed"], run["invocation"]) for run in later.document["runs"]]
    assert kept == [(1, None, 0), (2, "no answer", 0), (2, None, 1)], (
        "a failed run stays beside the one that replaces it"
    )


def test_what_is_published_of_the_same_commit_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, path = tmp_path / "results.json", tmp_path / "unpublished.json"
    monkeypatch.setattr(results, "RESULTS", published)
    monkeypatch.setattr(results, "FILE", path)
    Results(published, sample_results.invocation(), replace=False).add("runs", _run())
    again = Results(path, sample_results.invocation(), replace=False)
    assert again.has("runs", workload="a", copier="null-copier", round=1)
    other = Results(path, sample_results.invocation("f" * 40), replace=False)
    assert not other.document["runs"], "on another commit all is measured, without a word of replacing"
    other.add("runs", _run(number=3))
    assert [
        run["round"] for run in Results(path, other.document["invocations"][0], replace=False).document["runs"]
    ] == [3]
    assert [run["round"] for run in json.loads(published.read_text(encoding="utf-8"))["runs"]] == [1]


def test_what_has_failed_twice_is_not_tried_again(tmp_path: Path) -> None:
    found = Results(tmp_path / "results.json", sample_results.invocation(), replace=False)
    for left in (True, True, False):
        assert found.has("runs", workload="a", copier="null-copier", round=1) is not left
        found.add("runs", _run(failed="OutOfMemoryError"))


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (sample_results.invocation(), sample_results.invocation("f" * 40)),
        (sample_results.invocation(clean=False), sample_results.invocation()),
        (sample_results.invocation(clean=False), sample_results.invocation(clean=False)),
    ],
    ids=["another commit", "changed files before", "changed files"],
)
def test_results_of_another_commit_are_not_resumed(
    earlier: dict[str, Any], now: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    Results(path, earlier, replace=False).add("runs", _run(took_s=60.0))
    before = path.read_bytes()
    with pytest.raises(OtherCommitError, match=r"results\.json is of commit 0123456789ab.*git worktree add.*--replace"):
        Results(path, now, replace=False)
    assert path.read_bytes() == before
    other = Results(path, now, replace=True)
    assert (other.document["runs"], len(other.document["invocations"])) == ([], 1)
    assert other.seconds == {("a", "null-copier"): 60.0}, "how long it takes is still known"


def test_files_of_one_measurement_each_are_resumed_on_the_same_commit_only(tmp_path: Path) -> None:
    path, now = tmp_path / "results.json", sample_results.invocation()
    assert begin(path, now)["runs"] == []
    runs = [{"copier": "mirror", "failed": "no"}, {"copier": "spark"}]
    path.write_text(json.dumps({"measured": now, "runs": runs}), encoding="utf-8")
    assert begin(path, now)["runs"] == runs
    assert [is_done({"copier": name}, runs) for name in ("mirror", "spark")] == [False, True]
    for other in (sample_results.invocation("f" * 40), sample_results.invocation(clean=False)):
        with pytest.raises(OtherCommitError, match=r"results\.json is of commit 0123456789ab"):
            begin(path, other)


@pytest.mark.parametrize(
    ("path", "differs"),
    [
        ("mirror/relay.py", True),
        ("mirror/relay.md", False),
        ("tests/benchmarks/bench_latency.py", True),
        ("tests/benchmarks/side_by_side/results.json", False),
        ("tests/benchmarks/side_by_side/earlier/loads.json", False),
        ("tests/benchmarks/side_by_side/verdicts.py", False),
        ("tests/benchmarks/test_written.py", False),
        ("tests/relay/test_relay.py", False),
        ("tests/conftest.py", False),
        ("README.md", False),
        ("requirements.txt", True),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_main_may_move_on_by_documents_results_and_tests(
    path: str, differs: bool, committed: bool, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(text: str) -> None:
        for one in {path, "mirror/always.py"}:
            (tmp_path / one).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / one).write_text(text if one == path else "", encoding="utf-8")

    git("init", "-q")
    write("before")
    git("add", ".")
    git("commit", "-q", "-m", "measured")
    commit = git("rev-parse", "HEAD")
    assert differences(commit, tmp_path) == []
    write("after")
    if committed:
        git("commit", "-q", "-a", "-m", "later")
    assert differences(commit, tmp_path) == ([path] if differs else [])
    new = tmp_path / "mirror" / "new.py"
    new.touch()
    assert "mirror/new.py" in differences(commit, tmp_path)


def _imported(file: Path, root: Path, found: set[Path]) -> None:
    """Add to ``found`` the files of tests that ``file`` imports, and what these import."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] + [f"{node.module}"]
        for name in names:
            path = root / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and path.exists() and path not in found:
                found.add(path)
                _imported(path, root, found)


def test_all_that_measures_is_compared_with_the_commit() -> None:
    """A module that a benchmark imports may not change behind a results file."""
    root, found = Path(__file__).parents[2], set[Path]()
    for program in ("side_by_side", "loss", "wide_area"):
        _imported(root / "tests" / "benchmarks" / program / "__main__.py", root, found)
    names = {str(file.relative_to(root)) for file in found}
    assert {"tests/benchmarks/bench_latency.py", "tests/benchmarks/loss/copiers.py"} <= names
    assert {name for name in names if not name.startswith(MEASURED)} == set()


def test_what_the_time_did_not_suffice_for_is_left_for_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started, published or written."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the program's handlers would stay
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "results.json"
    words = ["--within", "-1", "--rounds", "2", "--results", str(path)]
    for workload in ("a", "h", "idle", "latency"):
        words += ["--workload", workload]
    assert main(words) == 0
    runs = {key: sum(len(order(WORKLOADS[key], COPIERS, number, 2)) for number in (1, 2)) for key in "ah"}
    runs |= {"idle": 4, "latency": 2 * len(sections(1.0)["latency"])}
    output = capsys.readouterr().out
    for key, count in runs.items():
        assert re.search(rf"{key} +{count} runs +0 minutes, and {count} never timed", output), (key, output)
    assert re.search(rf"left +{sum(runs.values())} runs", output)
    assert "runs are left, of a, b, c" in output, "also what was not asked for"
    assert not path.exists()


def test_the_plan_says_how_long_it_took_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "results.json"
    found = Results(path, sample_results.invocation(), replace=False)
    for seconds in (50.0, 60.0, 600.0):
        found.add("runs", _run("mirror-exactly-once", took_s=seconds))
    before = path.read_bytes()
    words = [
        "--plan",
        "--within",
        "-1",
        "--workload",
        "a",
        "--copier",
        "mirror-exactly-once",
        "--copier",
        "kafka-python",
    ]
    assert main([*words, "--results", str(path)]) == 0
    output = capsys.readouterr().out
    assert re.search(r"left +6 runs +5 minutes", output), "5 of a minute, and one that is not known"
    assert "call it again" not in output
    assert path.read_bytes() == before


def test_a_part_of_the_records_needs_a_file_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked(["--scale", "0.02"])
    assert "--results" in capsys.readouterr().err
    assert asked(["--scale", "0.02", "--results", "x.json"]).scale == 0.02


def test_a_run_is_reported_in_a_line() -> None:
    result = _run(
        bytes=500_000_000,
        copy_seconds=5.0,
        startup_seconds=1.0,
        cpu_seconds={"copying": 2.0},
        peak_rss_mb={"all": 99.0},
    )
    assert "copy 5.00 s (100 MB/s)" in line(result)
    assert "FAILED: no answer" in line(_run(failed="no answer"))
    assert "NOT EQUAL: it differs" in line({**result, "equal": False, "difference": "it differs"})


def test_an_invocation_names_commit_arguments_machine_and_versions() -> None:
    found = results.invocation(9, ["--rounds", "1"])
    assert re.fullmatch("[0-9a-f]{40}", found["commit"])
    assert isinstance(found["clean"], bool)
    assert {"cores", "memory_gb", "cpu", "kernel"} <= found["machine"].keys()
    assert {"mirror", "kafka", "mirrormaker", "spark", "python", "java", "confluent-kafka", "kafka-python"} <= found[
        "versions"
    ].keys()
    assert (found["seed"], found["arguments"]) == (9, ["--rounds", "1"])


def test_a_log_is_summed_up_by_its_first_and_last_line_with_a_reason(tmp_path: Path) -> None:
    log = tmp_path / "copier.log"
    log.write_text("started\n", encoding="utf-8")
    assert last_line(log) == "started"
    log.write_text(
        "java.lang.OutOfMemoryError: Java heap space\n\tat java.util.Error\nINFO stopped\n", encoding="utf-8"
    )
    assert last_line(log) == "java.lang.OutOfMemoryError: Java heap space"
    log.write_text("java.lang.OutOfMemoryError\nERROR closing\nERROR not in time\nINFO stopped\n", encoding="utf-8")
    assert last_line(log) == "java.lang.OutOfMemoryError ... ERROR not in time"
    log.write_text("", encoding="utf-8")
    assert last_line(log) == "it said nothing"


# --- on real brokers


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.parametrize("kind", [PLAIN, "transactional"])
def test_the_null_copier_copies_a_topic(
    source_cluster: Cluster, target_cluster: Cluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Observed, metered, and found equal by the comparison."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    workload = Workload(f"small-{kind}", "", 4_000, 500, partitions=3, batch_bytes=16_384, kind=kind)
    address = source_cluster.bootstrap_servers
    filling.fill(source_cluster, workload, seed=1)
    held = stock.take(address, workload.topic)
    assert held.records == workload.records
    pair = Pair(source_cluster, target_cluster)
    result = run(pair, COPIER["null-copier"], workload, held, compared=True)
    filling.delete(address, [workload.topic])
    assert (result["failed"], result["equal"], result["records"]) == (None, True, 4_000)
    assert 0 < result["startup_seconds"] <= result["whole_seconds"] <= result["process_seconds"] + 1
    assert result["cpu_seconds"]["copying"] > 0
