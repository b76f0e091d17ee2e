"""What a failback shows as text."""

from __future__ import annotations

from dataclasses import replace

from mirror.switch.failback import lines as shown
from mirror.switch.failback.inspection import LogFacts, TopicFacts, inspect
from mirror.switch.failback.listing import GroupCost, TopicTail
from mirror.switch.failback.tail import TailCount
from tests.switch.failback.test_deciding import FOUND, OPEN


def test_each_topic_is_shown_and_each_partition_that_is_not_as_it_was() -> None:
    found = inspect(
        "c",
        "b",
        {
            "t": TopicFacts(
                copied=(5, 9), known_id="", live_id="", logs=[LogFacts(start=7, end=9), LogFacts(start=0, end=8)]
            ),
            "u": TopicFacts(copied=(1,), known_id="", live_id=None),
        },
    )
    assert [*shown.inspected(found)] == [
        "cluster c: another one; the failover has left b",
        "topic t: truncated: it ends at offset 8, and was copied up to 9; at most 2 records that only this cluster has",
        "  t-0: retention has deleted 2 offsets behind the divergence",
        "  t-1: truncated: it ends at offset 8, and was copied up to 9",
        "topic u: missing: the old cluster has no such topic; at most 0 records that only this cluster has",
    ]


def test_a_tail_is_shown_with_its_times_and_keys() -> None:
    parts = (TailCount(partition=0, start=3, end=5, records=2, bytes=7, first_ms=0, last_ms=1000), TailCount(1, 4, 4))
    tail = TopicTail(topic="t", partitions=parts, written_since=3, written_since_is_exact=False)
    times = "1970-01-01T00:00:00Z to 1970-01-01T00:00:01Z"
    assert [*shown.listed([tail], [GroupCost(group="g", tail=2, again=1)])] == [
        f"topic t: 2 records, 7 bytes, {times}; about 3 of its keys were written since",
        "  t-0: offsets 3 to 5, 2 records",
        "group g: would read 2 records of tails, and 1 offsets again",
    ]


def test_the_next_command_is_shown() -> None:
    record = replace(OPEN, failback=FOUND)
    assert [*shown.next_lines("s", ["b"], record, {"t"})] == ["mirror failback s --export --append: releases the flows"]
    assert "--export: exports the tail of 1 topics" in next(shown.next_lines("s", ["b"], record, ()))
    broken = replace(record, failback=replace(FOUND, exported=("t",), broken=("t",)))
    (line,) = shown.next_lines("s", ["b"], broken, ())
    assert line == "mirror failback s --rebuild-all --dry-run: shows how topic t would come back"
    released = replace(record, failback=replace(FOUND, exported=("t",), released_ms=1))
    lines = [*shown.next_lines("s", ["b"], released, ())]
    assert lines[-1] == '[switches.HOME] flows = ["b"], back = ["f"]'
    (last,) = shown.next_lines("s", [], released, ())
    assert last.startswith("mirror failback s --lift")
    (end,) = shown.next_lines("s", ["b"], replace(record, failback=replace(FOUND, lifted_ms=1)), ())
    assert end == "the old cluster is open: nothing is left to do"
