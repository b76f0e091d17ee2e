"""Entries of assignments as committed offsets of the control group."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.relay.model.assignments import RELEASED, Entry
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.assignment_entries import ENTRIES_PER_REQUEST, entries_of, outdated, requests_of
from mirror.relay.progress.control_record import RunControl, control_partition
from tests.relay.progress.test_stored_json import METADATA, VALUES

RANGE = Range(
    flow="f",
    topic="new",
    target_topic="a.new",
    partition=3,
    start=5,
    end=OPEN_END,
    source_cluster_id="paris",
    topic_id="the-id",
    source_end=9,
    source_epoch=2,
    first=4,
)
ENTRY = Entry("run-1", 7, 2, 1, RANGE)
TARGET = TopicPartition("a.new", 3)


def read(offsets: dict[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, Entry]:
    return entries_of(offsets, "f", "run-1", 7)


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        replace(ENTRY, range=replace(RANGE, first=None, source_epoch=None)),
        replace(ENTRY, owner=RELEASED, previous=0),
    ],
)
def test_an_entry_survives_a_round_trip(entry: Entry) -> None:
    assert read({TARGET: entry.to_offset()}) == {TARGET: entry}


@pytest.mark.parametrize("other", [replace(ENTRY, run="run-2"), replace(ENTRY, job=6), replace(ENTRY, job=8)])
def test_entries_of_other_runs_and_jobs_are_left_out(other: Entry) -> None:
    assert read({TARGET: other.to_offset()}) == {}


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[]",
        '{"run":"run-1","task":1,"topic":"t","start":0,"end":0}',
        '{"run":"run-1","task":-2,"ver":1,"topic":"t","start":0,"end":0}',
        '{"run":"run-1","task":true,"ver":1,"topic":"t","start":0,"end":0}',
        '{"run":"run-1","task":1,"ver":1,"topic":"t","start":-1,"end":0}',
    ],
)
def test_what_is_no_entry_is_left_out(metadata: str) -> None:
    assert read({TARGET: OffsetAndMetadata(7, None, metadata)}) == {}


JSON_ENTRY = json.loads(ENTRY.to_offset().metadata)


@settings(max_examples=50)
@given(
    METADATA | st.dictionaries(st.sampled_from(sorted(JSON_ENTRY)), VALUES).map(lambda d: json.dumps(JSON_ENTRY | d))
)
def test_reading_never_raises(metadata: Any) -> None:
    found = read({TARGET: OffsetAndMetadata(7, None, metadata)})
    for entry in found.values():
        entry.to_offset()


def test_the_longest_entry_fits_into_what_brokers_store() -> None:
    longest = replace(RANGE, topic="x" * 249, start=2**62, first=2**62, source_end=2**62, source_cluster_id="c" * 36)
    entry = replace(ENTRY, range=longest, run="r" * 60, version=2**31, previous=10**5)
    assert len(entry.to_offset().metadata) < 1_000


def test_an_entry_takes_less_than_200_bytes() -> None:
    assert len(ENTRY.to_offset().metadata) < 200, ENTRY.to_offset().metadata


def test_requests_are_limited_and_the_last_entry_of_a_partition_counts() -> None:
    entries = [replace(ENTRY, range=replace(RANGE, partition=number)) for number in range(ENTRIES_PER_REQUEST + 1)]
    later = replace(entries[0], version=3, owner=0)
    requests = list(requests_of([*entries, later]))
    assert [len(request) for request in requests] == [ENTRIES_PER_REQUEST, 1]
    assert read(requests[0])[later.target] == later
    assert list(requests_of([])) == []


def test_what_is_not_of_this_job_is_outdated_but_for_the_control_record() -> None:
    _, control = control_partition("f")
    successor = RunControl(run="run-2", host="h", since_ms=1, generation=1).to_offset()
    offsets = {
        TARGET: ENTRY.to_offset(),
        control: RunControl(run="run-1", host="h", since_ms=1).to_offset(),
        TopicPartition("a.old", 0): replace(ENTRY, job=6).to_offset(),
        TopicPartition("a.old", 1): OffsetAndMetadata(7, None, "x"),
    }
    assert outdated(offsets, "f", "run-1", 7) == [TopicPartition("a.old", 0), TopicPartition("a.old", 1)]
    assert outdated(offsets | {control: successor}, "f", "run-1", 7) == [], "they may be of the run that took over"
