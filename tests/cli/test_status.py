"""``mirror status`` as it is typed: once, live, in a terminal, as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from mirror.cli.commands import status as command
from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress import status_values
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.relay.progress.status_values import StatusKind
from mirror.spark import clusters
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.status_table import ERRORS_KEPT_MS, LastError
from mirror.spark.status import status_reader
from tests.spark import fakes
from tests.spark.flow_harness import UNREACHABLE_FLOW, configuration, use_fakes
from tests.spark.status_harness import ReportedFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typer.testing import Result

T0 = 1_800_000_000_000


class StatusHarness(ReportedFlow):
    """A flow, and a clock that moves when the command pauses."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pauses: list[float] = []
        self.looks = 5
        self.meanwhile: Callable[[int], None] = lambda _: None

    def unix_ms(self) -> int:
        return self.now_ms

    def now(self) -> int:
        return self.now_ms

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_ms += round(seconds * 1000)
        if len(self.pauses) == self.looks:
            raise KeyboardInterrupt
        self.meanwhile(len(self.pauses))

    def status(self, *arguments: str) -> Result:
        return self.invoke("status", *arguments)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    use_fakes(monkeypatch)
    site = StatusHarness(tmp_path)
    site.use_topic(monkeypatch)
    monkeypatch.setattr(status_reader, "SystemClock", lambda: site)
    monkeypatch.setattr(command, "pause", site.pause)
    return site


def test_one_reading_is_a_table(site: StatusHarness) -> None:
    site.a.add_topic("orders", [1_500, 10, 3])
    site.commit(500)
    site.commit(10, 1)
    site.now_ms += 7_200_000
    found = site.status()
    assert (found.exit_code, found.stderr) == (0, "")
    lines = [" ".join(line.replace("│", " ").split()) for line in found.stdout.splitlines()]
    assert lines[0] == "flow f: a to b; 1,003 behind, 1 not begun; nothing runs"
    rows = [line for line in lines if " orders " in line]
    assert rows == [
        "behind orders 0 500 1,500 1,000 2 h ago",
        "not begun orders 2 none yet 3 3",
        "caught up orders 1 10 10 0 2 h ago",
    ]
    assert not (site.folder / "report").exists(), "to look leaves nothing behind"


def test_what_failed_at_night_is_shown_in_the_morning_for_a_week(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10, 10, 10, 10, 10])
    for number in range(5):
        site.commit(10, number)
        key = status_values.partition_key(StatusKind.ERROR, TopicPartition("orders", number))
        site.report_value(key, LastError(f"record {number} was refused", site.now_ms - 25_200_000 - 60_000 + number))
    found = site.status().stdout
    assert "orders-4 has recovered; 7 h ago: record 4 was refused" in found
    assert found.count("has recovered") == 3
    assert "2 more partitions have recovered within a week (--json)" in found
    for number in range(2):
        key = status_values.partition_key(StatusKind.ERROR, TopicPartition("orders", number))
        site.report_value(key, LastError("the target topic was made again", site.now_ms - 25_200_000 + number))
    assert "orders-0, 1 have recovered; 6 h ago: the target topic was made again" in site.status().stdout
    key = status_values.partition_key(StatusKind.ERROR, TopicPartition("orders", 0))
    site.report_value(key, LastError("record 0 was refused", site.now_ms - 25_200_000))
    site.looks = 1
    assert "7 h ago: record 0 was refused" in site.status("--watch").stdout
    site.now_ms += ERRORS_KEPT_MS
    assert "recovered" not in site.status().stdout


def test_an_interval_is_for_watching(site: StatusHarness) -> None:
    found = site.status("--every", "5")
    assert (found.exit_code, "has no effect without --watch" in found.stderr) == (2, True)


def test_without_leaders_no_number_is_said(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10, 10])
    with site.a.change() as state:
        for partition in state["topics"]["orders"]["partitions"]:
            partition["leader"] = -1
    assert site.status().stdout.startswith("flow f: a to b; how far it is behind is not known (2 partitions); nothing")


def test_a_recreated_topic_is_not_shown_as_caught_up(site: StatusHarness) -> None:
    site.a.add_topic("orders", [5, 7])
    for partition, topic_id in ((0, "another"), (1, site.a.state()["topics"]["orders"]["id"])):
        site.commit(900, partition, topic_id=topic_id)
    for arguments in ((), ("--watch",)):
        site.looks = len(site.pauses) + 1
        text = " ".join(site.status(*arguments).stdout.replace("│", " ").split())
        assert "flow f: a to b; 5 behind in 1 of 2 partitions, not known in the others, 2 failed" in text
        assert "failed orders 0" in text
        assert "failed orders 1" in text
        assert "losing" not in text
        assert "recreated: copied up to offset 900 of a topic that was deleted and made again" in text
        assert "truncated: copied up to offset 900" in text
    (flow,) = json.loads(site.status("--json").stdout)["flows"]
    assert [(one["state"], one["lag"]) for one in flow["partitions"]] == [("failed", 5), ("failed", None)]


@pytest.mark.parametrize(
    ("seen_ms", "words"),
    [
        (0, "run r1 on h1"),
        (T0 - 4_000, "run r1 on h1, seen 4 s ago"),
        (T0 - 754_000, "run r1 on h1, not seen for 13 min: it has died or cannot reach the target"),
    ],
)
def test_the_head_says_when_the_run_was_last_seen(site: StatusHarness, seen_ms: int, words: str) -> None:
    site.a.add_topic("orders", [10])
    site.commit(10)
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=seen_ms))
    assert site.status().stdout.splitlines()[0] == f"flow f: a to b; 0 behind; {words}"
    (flow,) = json.loads(site.status("--json").stdout)["flows"]
    assert (flow["run"]["seen_ms"], flow["run"]["gone"]) == (seen_ms, 0 < seen_ms < T0 - 60_000)


def give(orders: RunControl) -> None:
    group, tp = control_partition("f")
    Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group, {tp: orders.to_offset()})


def test_one_reading_shows_last_errors_below_the_table(site: StatusHarness) -> None:
    """Also with a name that no topic of the target can have: it ended the whole look."""
    long = "orders".ljust(249, "x")
    site.a.add_topic("orders", [10]).add_topic(long, [5] * 7)
    site.commit(10)
    found = site.status()
    assert (found.exit_code, found.stderr) == (0, "")
    shown = " ".join(found.stdout.split())
    assert shown.count("would have 251 characters") == 1, "once for all of the topic's partitions"
    assert "-0, 1, 2, 3, 4, ...: its target topic's name would have 251 characters" in shown.replace(f"{long} ", long)
    for number in range(MAX_PARTITIONS_SHOWN + 1):
        site.a.add_topic(f"orders-{number}".ljust(249, "x"), [5])
    assert "2 more topics have errors (--all)" in site.status().stdout
    assert "more topics" not in site.status("--all").stdout


def test_one_reading_says_which_way_each_partition_goes_and_why(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10, 10, 10])
    site.config.write_text(f'{configuration()}exactly-once-by = "auto"\n')
    site.commit(10)
    assert "1 partition goes in transactions: orders-0" in site.status().stdout
    site.commit(10, 1, way=Way.SEQUENCES)
    attempts = []
    for partition, way, reason in (
        (0, "transactions", "the source topic is compacted"),
        (1, "sequences", "records are younger than 12 h"),
    ):
        found = RangeResult(flow="f", topic="orders", target_topic="a.orders", partition=partition, start=0, end=10)
        found.way, found.way_reason = way, reason
        attempts.append(AttemptResult(0, 0, found))
    site.report_results(*attempts)
    shown = " ".join(site.status().stdout.split())
    assert "1 partition goes in transactions, because the source topic is compacted: orders-0" in shown
    assert "1 partition goes by sequences, because records are younger than 12 h: orders-1" in shown
    assert "orders-2" not in shown, "it has no progress yet"


def test_one_reading_says_the_way_that_the_flow_fixes(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    site.commit(10)
    site.config.write_text(f'{configuration()}exactly-once-by = "transactions"\n')
    line = '1 partition goes in transactions, because exactly-once-by = "transactions": orders-0'
    assert line in " ".join(site.status().stdout.split())
    site.config.write_text(f'{configuration()}delivery = "at-least-once"\n')
    assert "in transactions" not in site.status().stdout


def test_one_reading_says_what_the_target_had_lost(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    site.commit(10)
    loss = {"kind": "truncated", "target_start": 50, "target_end": 60, "start": 3, "end": 10, "time": 7}
    found = RangeResult(flow="f", topic="orders", target_topic="a.orders", partition=0, start=3, end=10)
    found.target_losses = [loss]
    site.report_results(AttemptResult(0, 0, found))
    line = "orders-0: the target lost its offsets from 50 to 59: the source's offsets from 3 to 9 were copied again"
    assert line in " ".join(site.status().stdout.split())


def test_one_reading_shows_the_size_of_the_offset_index(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    assert "offset index" not in site.status().stdout
    site.b.add_topic(offset_topic_of("f"), [7])
    assert "offset index: 700 bytes on b" in site.status().stdout
    assert json.loads(site.status("--json").stdout)["flows"][0]["index_bytes"] == 700


def test_a_mirrormaker_for_which_the_flow_has_stopped_is_shown(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.a.add_topic("orders", [10])
    assert json.loads(site.status("--json").stdout)["flows"][0]["mirrormaker"] is None
    line, asked = "MirrorMaker 2 copies again: stop it", list[tuple[object, ...]]()

    def read(*arguments: object) -> str:
        asked.append(arguments)
        return line

    monkeypatch.setattr("mirror.spark.status.status_reader.read_resumed", read)
    assert line in site.status().stdout.splitlines()
    assert json.loads(site.status("--json").stdout)["flows"][0]["mirrormaker"] == line
    asked.clear()
    assert site.status("--watch", "--every", "5").stdout.count(line) == 5
    assert len(asked) == 3, "it is read every 10 s"


def test_one_reading_as_json(site: StatusHarness) -> None:
    site.a.add_topic("orders", [1_500])
    site.commit(500)
    (flow,) = json.loads(site.status("--json").stdout)["flows"]
    (one,) = flow["partitions"]
    assert (flow["flow"], flow["lag"], flow["run"], flow["states"]) == ("f", 1_000, None, {"behind": 1})
    assert (one["lag"], one["copied_per_second"], one["seconds_to_drain"]) == (1_000, None, None)


def test_watching_shows_rates_and_times(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10_000])
    site.commit(0)
    site.meanwhile = lambda looks: site.commit(500 * looks)
    found = site.status("--watch", "--every", "5")
    assert (found.exit_code, found.stderr, site.pauses) == (0, "", [5.0] * 5)
    assert found.stdout.count("flow f: a to b") == 5
    last = found.stdout.split("flow f: a to b")[-1]
    assert "copied 100/s, new 0/s; drained in 80 s; 1 catching up" in last
    (row,) = [line.split() for line in last.splitlines() if "orders" in line]
    assert row == ["catching", "up", "orders", "0", "8,000", "-", "100", "0", "80", "s", "-"]
    head = next(line.split() for line in last.splitlines() if "state" in line)
    assert head == ["state", "topic", "p", "lag", "late", "copied/s", "new/s", "to", "drain", "to", "loss"]


def test_a_partition_that_has_caught_up_has_no_times(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    site.commit(10)
    site.looks = 2
    last = site.status("--watch").stdout.split("flow f: a to b")[-1]
    (row,) = [line.split() for line in last.splitlines() if "orders" in line]
    assert row == ["caught", "up", "orders", "0", "0", "0", "s", "0", "0"]
    assert "loss;" not in last


def test_watching_as_json_prints_a_line_for_each_reading(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10_000])
    site.commit(0)
    site.meanwhile = lambda looks: site.commit(500 * looks)
    found = site.status("--watch", "--every", "5", "--json")
    result = [json.loads(line) for line in found.stdout.splitlines()]
    assert [each["errors"] for each in result] == [{}] * 5
    assert [each["flows"][0]["lag"] for each in result] == [10_000, 9_500, 9_000, 8_500, 8_000]
    assert [each["flows"][0]["partitions"][0]["copied_per_second"] for each in result] == [None, 100, 100, 100, 100]
    assert [each["flows"][0]["time_ms"] for each in result] == [T0 + 5_000 * each for each in range(5)]


def test_a_flow_that_cannot_be_read_hides_no_other_and_is_retried(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    site.config.write_text(configuration() + UNREACHABLE_FLOW)
    site.looks = 2

    gone = fakes.Cluster("gone:1")

    def appears(_: int) -> None:
        gone.make().add_topic("clicks", [5])

    site.meanwhile = appears
    first, second = (json.loads(each) for each in site.status("--watch", "--json").stdout.splitlines())
    assert ([each["flow"] for each in first["flows"]], list(first["errors"])) == (["f"], ["g"])
    assert "gone:1: connection refused" in first["errors"]["g"]
    assert ([each["flow"] for each in second["flows"]], second["errors"]) == (["f", "g"], {})
    gone.stop()
    site.looks, site.pauses = 1, []
    shown = site.status("--watch").stdout
    assert "flow g: describing topics did not succeed" in shown
    once = site.status()
    assert once.exit_code == 1
    assert once.stderr.startswith("mirror: cluster gone does not answer: ")
    assert "flow f: a to b; 10 behind, 1 not begun" in once.stdout, "and the other flow is shown"


def test_a_flow_without_topics_hides_no_other(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    with site.config.open("a") as file:
        file.write('[flows.h]\nsource = "a"\ntarget = "b"\ntopics = ["invoices"]\n')
    once = site.status()
    assert once.exit_code == 1
    assert "flow h: none of the 1 topics of cluster a matches" in once.stderr
    assert "flow f: a to b; 10 behind" in once.stdout
    site.looks = 1
    (document,) = map(json.loads, site.status("--watch", "--json").stdout.splitlines())
    assert ([each["flow"] for each in document["flows"]], list(document["errors"])) == (["f"], ["h"])


def test_of_one_cluster_that_answers_all_is_shown_that_it_knows(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    site.b.add_topic("a.orders", [40]).add_topic("others", [7])
    site.commit(40)
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=T0 - 4_000))
    at = f"{datetime.fromtimestamp(T0 / 1000).astimezone():%H:%M:%S}"
    for name, head, row in (
        ("a", f"progress as of {at}; lag unknown: cluster a does not answer; run r1 on h1, seen 4 s ago", "40 unknown"),
        ("b", f"ends of a as of {at}; progress, lag and run unknown: cluster b does not answer", "unknown 100"),
    ):
        cluster = fakes.Cluster(f"{name}:1")
        cluster.stop()
        found, as_json = site.status(), site.status("--json")
        document = json.loads(as_json.stdout)
        cluster.start()
        text = " ".join(found.stdout.replace("│", " ").split())
        assert f"flow f: a to b; {head}" in text
        assert f"unknown orders 0 {row} unknown" in text
        (flow,) = document["flows"]
        line = flow["away"][name]
        assert "connection refused" in line
        assert (as_json.exit_code, as_json.stderr) == (1, f"mirror: {line}\n")
        assert (list(flow["away"]), flow["lag"], document["errors"]) == ([name], None, {})


def test_a_refused_flow_that_never_ran_has_a_row_with_the_reason(site: StatusHarness) -> None:
    """Of a flow that is refused nothing is made on the target, so no run has reported it."""
    site.a.add_topic("orders", [10])
    site.config.write_text(
        configuration()
        + '[flows.g]\nsource = "a"\ntarget = "b"\ntopics = ["orders"]\n'
        + '[flows.h]\nsource = "a"\ntarget = "b"\ntopics = ["none"]\n'
    )
    found = site.status()
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert lines[0] == "flow state since until reason"
    clash = "flows f and g both copy into topic a.orders of cluster b"
    assert [line.partition(clash)[0] for line in lines[1:] if clash in line] == ["f refused - - ", "g refused - - "]
    assert any(line.startswith("h refused - - flow h: none of the 1 topics of cluster a matches") for line in lines)
    assert (found.exit_code, "flow h: none of" in found.stderr) == (1, True), "its status could not be read"
    flows = json.loads(site.status("--json").stdout)["flows"]
    assert [(one["flow"], bool(one["refused"]), len(one["partitions"])) for one in flows] == [
        ("f", True, 1),
        ("g", True, 1),
        ("h", True, 0),
    ]
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=T0))
    assert "f refused" not in " ".join(site.status().stdout.split()), "a run copies it now"


def test_of_no_cluster_that_answers_there_is_an_error(site: StatusHarness) -> None:
    site.a.stop()
    site.b.stop()
    found = site.status("--json")
    assert (found.exit_code, json.loads(found.stdout)["flows"]) == (1, [])
    assert json.loads(found.stdout)["errors"].keys() == {"f"}


def test_watch_keeps_the_last_status_while_a_cluster_is_away(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    site.commit(40)
    site.looks = 2
    site.meanwhile = lambda _: site.a.stop()
    at = f"{datetime.fromtimestamp(T0 / 1000).astimezone():%H:%M:%S}"
    shown = site.status("--watch").stdout
    assert "connection refused; retrying" in shown
    assert f"as of {at}: flow f: a to b; 60 behind" in shown


@pytest.mark.parametrize(("arguments", "timeout"), [((), None), (("--timeout", "2.5"), 1_250)])
def test_each_call_takes_half_of_the_timeout(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], timeout: int | None
) -> None:
    options: list[Mapping[str, object]] = []

    class Noting(Admin):
        def __init__(self, given: Mapping[str, object]) -> None:
            options.append(given)
            super().__init__(given)

    monkeypatch.setattr(clusters, "Admin", Noting)
    site.a.add_topic("orders", [1])
    assert site.status(*arguments).exit_code == 0
    assert {one.get("default.api.timeout.ms") for one in options} == {timeout}


def test_an_unhealthy_partitions_last_error_is_shown(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10, 10])
    site.commit(10, 1)
    with site.a.change() as state:
        state["topics"]["orders"]["partitions"][0]["earliest"] = 5
    site.commit(2)
    result = RangeResult(
        flow="f", topic="orders", target_topic="a.orders", partition=0, start=0, end=0, outcome=Outcome.FAILED
    )
    result.error = "its task says so"
    site.report_results(AttemptResult(0, 0, result))
    site.looks = 1
    shown = site.status("--watch").stdout
    assert "losing" in shown
    assert "retention: copied up to offset 2, but the source begins at 5" in shown, "what is seen now comes first"


def test_in_a_terminal_each_reading_replaces_the_screen(site: StatusHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its height holds the ten worst of 30 partitions."""
    site.a.add_topic("orders", [10] * 30)
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=18, _environ={})
    monkeypatch.setattr(command, "Terminal", lambda: console)
    site.looks = 3
    assert site.status("--watch").exit_code == 0
    text = out.getvalue()
    assert (text.count("\x1b[?1049h"), text.count("\x1b[?1049l")) == (1, 1)
    last = text.split("flow f: a to b")[-1]
    assert text.count("flow f: a to b") == 3
    assert last.count(" orders ") == 10
    assert "20 more partitions" in last


def test_names_are_not_read_as_markup(site: StatusHarness) -> None:
    site.a.add_topic("orders", [10])
    give(RunControl(run="r1", host="[red]h", since_ms=1, seen_ms=T0))
    site.looks = 1
    assert "run r1 on [red]h" in site.status().stdout
    assert "run r1 on [red]h" in site.status("--watch").stdout


@pytest.mark.parametrize("arguments", [(), ("--watch",)], ids=["once", "watch"])
def test_text_of_another_client_is_printed_as_text(site: StatusHarness, arguments: tuple[str, ...]) -> None:
    """Who may commit for the group of a flow's orders names the host of a run."""
    site.a.add_topic("orders", [10])
    group, tp = control_partition("f")
    host = "ev\x1b]0;title\x07\x1b[2J\nflow g: nothing runs"
    orders = RunControl(run="r\x1b[31m", host=host, since_ms=T0, job=1)
    Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group, {tp: orders.to_offset()})
    site.looks = 1
    shown = site.status(*arguments).stdout
    assert r"run r\x1b[31m on ev\x1b]0;title\x07\x1b[2J\nflow g: nothing runs" in " ".join(shown.split())
    assert all(line.isprintable() for line in shown.splitlines())
    assert not any(line.startswith("flow g") for line in shown.splitlines())


def test_it_needs_no_spark_and_without_a_ledger_no_arrow() -> None:
    script = "import sys, mirror.cli.commands.status; sys.exit(bool({'pyspark', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# --- the view
