"""What a verification prints: the table, and the first differences."""

from __future__ import annotations

import io

from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.driver.output.verify_tables import difference_text, verification_lines
from mirror.spark.verification.verification_result import FlowVerification
from mirror.verify.partition_results import PartitionResult
from mirror.verify.values import Absent, Difference, Kind, Named, Uncompared, Verdict


def _printed(report: FlowVerification, *, all_partitions: bool = False) -> str:
    terminal = Terminal(io.StringIO())
    for lines in verification_lines(report, all_partitions=all_partitions):
        terminal.print(lines, markup=False, highlight=False)
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def _result(partition: int, verdict: Verdict | None = None, error: str = "") -> PartitionResult:
    return PartitionResult(topic="orders", target_topic="orders", partition=partition, verdict=verdict, error=error)


def _verdict(*differences: Difference) -> Verdict:
    return Verdict(
        source_start=0,
        target_start=0,
        source_end=120,
        target_end=125,
        records=120,
        bytes=5_000,
        differences=list(differences),
    )


def test_table_says_up_to_where_both_sides_are_equal_and_what_differs() -> None:
    verdict = _verdict(
        Difference(Kind.MISSING, 120, 125, 7), Difference(Kind.CONTENT, 130, 128, 1, ("value", "timestamp"))
    )
    verdict.uncompared.append(Uncompared("target", 0, 9, "the source's log begins later"))
    verdict.named[Named.FOREIGN] = 3
    text = _printed(FlowVerification(flow="f", results=[_result(0, _verdict()), _result(1, verdict)], proof_hash="ab"))
    assert "1 of 2 equal" in text
    assert "120 = 125" in text
    assert "240" in text
    for part in ("1 content; 7 missing", "target 0 to 8 not compared", "3 foreign records, which the flow permits"):
        assert part in " ".join(text.replace("│", " ").split())
    assert "orders-1: missing at source offset 120, target offset 125, 7 records" in text
    assert "orders-1: content (value, timestamp) at source offset 130, target offset 128" in text
    assert "proof: ab" in text


def test_worst_partitions_are_shown_first() -> None:
    results = [_result(number, _verdict()) for number in range(50)]
    results[44] = _result(44, error="no leader")
    results[47] = _result(47, _verdict(Difference(Kind.FOREIGN, 1, 1)))
    text = _printed(FlowVerification(flow="f", results=results))
    rows = [line for line in text.splitlines() if "orders" in line and "│" in line]
    assert ["different" in rows[0], "unknown" in rows[1], "equal" in rows[2]] == [True, True, True]
    assert "10 more partitions" in text
    assert "10 more partitions" not in _printed(FlowVerification(flow="f", results=results), all_partitions=True)


def test_table_says_which_partitions_are_complete_and_why_the_others_are_not() -> None:
    results = [_result(number, _verdict()) for number in range(50)]
    results[44].outside = (Uncompared("source", 120, 130, "they are not copied yet"),)
    absent = _verdict()
    absent.absent = Absent(7, 9, 2)
    results[45] = _result(45, absent)
    text = _printed(FlowVerification(flow="f", results=results))
    rows = [" ".join(line.replace("│", " ").split()) for line in text.splitlines() if "orders" in line and "│" in line]
    assert "equal no source 120 to 129 not compared: they are not" in rows[0]
    assert any("equal no 2 records at the source offsets 7 to 8" in row for row in rows)
    assert rows[-1].endswith("equal yes")
    assert "48 of 50" in text


def test_only_the_first_differences_are_listed() -> None:
    verdict = _verdict(*(Difference(Kind.MISSING, number, number) for number in range(9)))
    assert "orders-0: 4 more differences" in _printed(FlowVerification(flow="f", results=[_result(0, verdict)]))


def test_excerpts_follow_the_offsets() -> None:
    text = difference_text(Difference(Kind.FOREIGN, 1, 2, excerpts=("", "value[0:1] 61")))
    assert text == "foreign at source offset 1, target offset 2: source -; target value[0:1] 61"


def test_nothing_is_printed_of_a_flow_that_failed() -> None:
    assert _printed(FlowVerification(flow="f", error="no answer")) == ""
