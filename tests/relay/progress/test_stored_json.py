"""Whatever is stored in place of a flow's JSON is read as a value, or as nothing, and reading never raises."""

from __future__ import annotations

import json
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import OffsetAndMetadata, Outcomes, TopicPartition
from mirror.relay.futures import done
from mirror.relay.progress import committed as progress
from mirror.relay.progress import control_record as orders
from mirror.relay.progress import progress_topic as progress_log
from mirror.relay.progress.committed import Progress, read_progress
from mirror.wire.decode import Record

HOSTILE = [
    "[" * 4_000,
    '{"v":1,"source_cluster_id":' + "[" * 4_000,
    '{"time_ms":' * 1_500,
    '{"since_ms": 1e400}',
    '{"run": "a", "host": "h", "since_ms": 1e400}',
    '{"run": "a", "host": "h", "since_ms": NaN}',
    '{"run": "a", "host": "h", "since_ms": 253402300800000}',
    '{"run": ["a"], "host": "h", "since_ms": 1}',
    '{"run": "\\ud800", "host": "h", "since_ms": 1}',
    '{"time_ms": 1e400, "left": [1e400, NaN, -Infinity]}',
    '{"time_ms": true, "left": [true, true, true]}',
    f'{{"time_ms": {10**4_000}, "left": [{10**300}, 0, 0]}}',
    '{"time_ms": -1, "left": [-1, 0, 0]}',
    f'{{"time_ms": {"9" * 5_000}}}',
    '{"source_cluster_id": "\\ud800", "topic": {"a": 1}}',
    '{"v": 1',
    "\x00",
]

KEYS = [
    *("source_cluster_id", "topic_id", "time_ms", "run", "host", "since_ms", "stop", "ended", "offset", "leader_epoch"),
    *("target_end", "way", "earlier_ids", "searched", "anchor", "beginning", "progress", "attempts"),
]
NUMBERS = st.integers() | st.floats() | st.integers(-(10**30), 10**30)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
MARKS = st.fixed_dictionaries(
    {"end": st.integers(0, 2**63 - 1) | VALUES},
    optional=dict.fromkeys(("topic_id", "leader_epoch", "producer_id"), VALUES)
    | {"batch": VALUES | st.lists(st.integers(-1, 2**33), max_size=3)},
)
OWN = {"v": 1, "source_cluster_id": "c", "topic_id": "t", "run": "r", "host": "h", "since_ms": 1}
"""What makes any other field count."""
METADATA = (
    st.sampled_from(HOSTILE)
    | st.text()
    | st.dictionaries(st.sampled_from(KEYS), VALUES).map(lambda fields: json.dumps(OWN | fields))
    | MARKS.map(lambda mark: json.dumps(OWN | {"target": mark}))
)


def _can_be_used(found: Progress) -> None:
    again = progress.to_offset(found)
    again.metadata.encode()
    assert progress.from_offset(again) == found
    assert datetime.fromtimestamp(found.time_ms / 1000, UTC) is not None


@given(METADATA)
def test_any_metadata_parses_as_progress_at_its_offset(metadata: str) -> None:
    found = progress.from_offset(OffsetAndMetadata(5, None, metadata))
    assert (found.offset, found.leader_epoch) == (5, None)
    _can_be_used(found)


@given(METADATA)
def test_any_metadata_parses_as_a_control_record_or_none(metadata: str) -> None:
    found = orders.from_offset(OffsetAndMetadata(5, None, metadata))
    if found is not None:
        assert found.run
        assert (found.run + found.host).isprintable()
        datetime.fromtimestamp(found.since_ms / 1000, UTC)
        assert orders.from_offset(found.to_offset()) == found


@given(METADATA, METADATA)
def test_any_record_is_parsed_or_skipped(key: str, value: str) -> None:
    notes = progress_log.ProgressTopic({"bootstrap.servers": "nowhere:9092"}, "f")
    tp = TopicPartition("t", 0)
    own = b'{"topic":"t","partition":0}'
    records = [
        Record(n, 0, key, value.encode(errors="surrogatepass"), ())
        for n, key in enumerate([own, key.encode(errors="surrogatepass"), None])
    ]
    for kept in notes._latest(iter(records), frozenset({tp})).values():
        _can_be_used(kept.progress)
        assert kept.target_end < 2**63


@pytest.mark.parametrize("metadata", HOSTILE)
def test_invalid_offset_does_not_stop_a_plan(metadata: str) -> None:
    good, bad = TopicPartition("t", 0), TopicPartition("t", 1)

    class Groups:
        def offsets_of_groups_async(self, groups: Any, _: object = None) -> Future[Any]:
            own = '{"v":1,"source_cluster_id":"paris","topic_id":"t"}'
            of_each = {
                group: Outcomes({tp: OffsetAndMetadata(7, None, metadata if tp == bad else own) for tp in tps}, {})
                for group, tps in groups.items()
            }
            return done(Outcomes(of_each, {}))

    found = read_progress(Groups(), "f", [good, bad])
    assert (found[good].source_cluster_id, found[bad].offset) == ("paris", 7)
