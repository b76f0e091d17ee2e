"""A report folder is bounded as a whole, and a stream goes on while it cannot be written."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from mirror.spark.driver.report.folder_check import FolderCheck
from mirror.spark.ledger import retention
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.retention import bound_folder

if TYPE_CHECKING:
    from pathlib import Path


NOW_S = int(time.time())


def fill(report_dir: Path, flow: str, run: str, periods: range, age_s: int) -> None:
    folder = report_dir / "ledger" / flow / run
    folder.mkdir(parents=True)
    for period in periods:
        for name in (f"plan-{period:08}.json", f"results-{period:08}.jsonl.gz"):
            (folder / name).write_bytes(bytes(150))
            os.utime(folder / name, (NOW_S - age_s + period,) * 2)


def epochs_of(report_dir: Path, flow: str, run: str) -> list[int]:
    return sorted(
        int(path.name.partition(".")[0][-8:]) for path in (report_dir / "ledger" / flow / run).glob("results-*")
    )


def test_the_oldest_periods_of_all_flows_go_first_and_the_last_two_of_a_run_that_goes_on_stay(tmp_path: Path) -> None:
    fill(tmp_path, "f", "1", range(1, 6), age_s=1_000)
    fill(tmp_path, "g", "2", range(1, 6), age_s=500)
    bound_folder(tmp_path, ledger_bytes=3_000)
    assert epochs_of(tmp_path, "f", "1") == [1, 2, 3, 4, 5]
    bound_folder(tmp_path, ledger_bytes=1_800)
    assert epochs_of(tmp_path, "f", "1") == [4, 5]
    assert epochs_of(tmp_path, "g", "2") == [2, 3, 4, 5]
    bound_folder(tmp_path, ledger_bytes=0)
    assert epochs_of(tmp_path, "f", "1") == epochs_of(tmp_path, "g", "2") == [4, 5]


def test_the_folder_is_bounded_as_a_whole_whatever_flows_it_has_had(tmp_path: Path) -> None:
    """Each of 50 flows that are gone has left a run, and one flow runs on for the eleventh time."""
    for number in range(50):
        fill(tmp_path, f"gone-{number}", "1", range(1, 4), age_s=100_000)
    for number in range(10, 21):
        fill(tmp_path, "f", f"{number}", range(1, 4), age_s=20_000 - 100 * number)
    bound_folder(tmp_path, ledger_bytes=1_000)
    left = [path for path in (tmp_path / "ledger").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in left) <= 1_000
    assert epochs_of(tmp_path, "f", "20") == [1, 2, 3]
    assert not (tmp_path / "ledger" / "gone-0" / "1").exists(), "an empty folder goes, too"


def test_a_long_log_keeps_its_last_lines_and_its_writers_continue_behind_them(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"".join(b"line %04d\n" % number for number in range(1_000)))
        bound_folder(tmp_path, log_bytes=20_000)
        assert log.stat().st_size == 10_000
        bound_folder(tmp_path, log_bytes=1_000)
        writer.write(b"the next\n")
    lines = log.read_text().splitlines()
    assert lines[0] == "line 0951", "a line that was cut goes, too"
    assert lines[-2:] == ["line 0999", "the next"]


def test_a_file_whose_status_cannot_be_read_ends_neither_a_run_nor_a_stream(tmp_path: Path) -> None:
    """Such as one of which the server has lost the handle; here a link whose target has too long a name."""
    fill(tmp_path, "f", "1", range(1, 6), age_s=1_000)
    (tmp_path / "ledger" / "f" / "1" / "plan-00000009.json").symlink_to("n" * 300)
    (tmp_path / "spark.log").write_text("line\n" * 100)
    bound_folder(tmp_path, ledger_bytes=0, log_bytes=100)
    assert (tmp_path / "spark.log").stat().st_size < 100
    said: list[str] = []
    FolderCheck(tmp_path, said.append, said.append).check([Ledger.open(tmp_path, "f", "2")], 100.0)
    assert said == []


def test_a_run_that_begins_bounds_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "f", "1", range(1, 6), age_s=1_000)
    monkeypatch.setattr(retention.bound_folder, "__kwdefaults__", {"ledger_bytes": 0, "log_bytes": 0})
    Ledger.open(tmp_path, "f", "2")
    assert epochs_of(tmp_path, "f", "1") == [4, 5]


def test_a_folder_without_room_is_reported_once_and_so_is_its_return(tmp_path: Path) -> None:
    said: list[str] = []
    check = FolderCheck(tmp_path, said.append, said.append)
    ledger = Ledger(tmp_path / "ledger" / "f" / "run")
    check.check([ledger], 0.0)
    assert (said, check.why_not) == ([], None)
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    (tmp_path / "ledger").touch()
    for now_s in (1.0, 20.0, 40.0):
        check.check([ledger], now_s)
    (line,) = said
    assert line.startswith(f"the report folder {tmp_path} cannot be written: Not a directory; copying goes on, ")
    (tmp_path / "ledger").unlink()
    check.check([ledger], 41.0)
    assert check.why_not is not None, "it is tried every 10 s"
    for now_s in (60.0, 80.0):
        check.check([ledger], now_s)
    assert said[1:] == [f"the report folder {tmp_path} is written again"]
