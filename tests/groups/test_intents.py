"""What the group topic has comes back as it was; anything else that is there is no intent."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import TopicPartition
from mirror.groups.commit_decision import ANY_SOURCE, NEVER, Intent
from mirror.groups.intents import (
    GroupTopicKey,
    ResumeKey,
    StoredIntents,
    encode_intents,
    encode_key,
    encode_resumed,
    parse_intents,
    parse_key,
    parse_resumed,
    parse_source,
    parse_times,
)

OFFSETS = st.integers(0, 2**63 - 1)
INTENTS = st.builds(
    Intent,
    st.one_of(st.just(NEVER), OFFSETS),
    OFFSETS,
    st.one_of(st.just(NEVER), st.just(ANY_SOURCE), OFFSETS),
    st.one_of(st.just(NEVER), OFFSETS),
    st.one_of(st.just(NEVER), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**53),
    st.lists(OFFSETS, max_size=4).map(tuple),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
GROUPS = st.one_of(st.just(""), TEXTS)


@given(GROUPS, TEXTS, st.dictionaries(st.integers(0, 2**31 - 1), INTENTS, max_size=5))
def test_intents_come_back_as_they_were(group: str, topic: str, intents: dict[int, Intent]) -> None:
    key = GroupTopicKey(group, topic)
    assert parse_key(encode_key(key)) == key
    assert parse_intents(encode_intents(intents)) == intents


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**40), max_size=5))
def test_times_come_back_as_they_were_beside_intents(times: dict[int, int]) -> None:
    intents = dict.fromkeys(times, Intent(1, 2))
    value = encode_intents(intents, times)
    assert (parse_intents(value), parse_times(value)) == (intents, times)


@pytest.mark.parametrize("times", [5, {"1e3": [0]}, {"-1": [0]}, {"9" * 5_000: [0]}, {"7": 0}, {"7": [-1, "0", 2**31]}])
def test_times_that_cannot_be_parsed_are_no_times(times: object) -> None:
    value = {"v": 1, "partitions": {"0": [1, 2, -1, -1, -1, 0]}, "times": times}
    encoded = json.dumps(value).encode()
    assert (parse_intents(encoded), parse_times(encoded)) == ({0: Intent(1, 2)}, {})


@given(GROUPS, st.dictionaries(TEXTS, st.dictionaries(st.integers(0, 2**31 - 1), OFFSETS, max_size=5), max_size=3))
def test_resumed_offsets_come_back_as_they_were(group: str, offsets: dict[str, dict[int, int]]) -> None:
    assert parse_key(encode_key(ResumeKey(group))) == ResumeKey(group)
    assert parse_resumed(encode_resumed(offsets)) == offsets


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"v":2,"partitions":{"0":[1,2,3,4,5,6]}}',
        b'{"v":1,"partitions":[1]}',
        b'{"v":1,"partitions":{"0":[1,2,3,4,5]}}',
        b'{"v":1,"partitions":{"0":[1,-1,3,4,5,6]}}',
        b'{"v":1,"partitions":{"0":[1,true,3,4,5,6]}}',
        b'{"v":1,"partitions":{"0":[1,2,3,4,5,6,"7"]}}',
        b'{"v":1,"partitions":{"0":[1,2,3,4,5,9223372036854775808]}}',
        b'{"v":1,"partitions":{"-1":[1,2,3,4,5,6]}}',
        b'{"v":1,"partitions":{"99999999999999999999":[1,2,3,4,5,6]}}',
        b'{"v":1,"partitions":{"\\u0661":[1,2,3,4,5,6]}}',
    ],
)
def test_anything_else_is_no_intent(value: bytes | None) -> None:
    assert parse_intents(value) == {}


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"{",
        b"{}",
        b'{"group":"g"}',
        b'{"group":1,"topic":"t"}',
        b'{"resume":[]}',
        b'{"group":"\\ud800","topic":"t"}',
    ],
)
def test_anything_else_is_no_key(key: bytes | None) -> None:
    assert parse_key(key) is None


def test_a_later_record_replaces_an_earlier_one_of_its_key() -> None:
    found, offsets = StoredIntents(), itertools.count()
    key = GroupTopicKey("g", "paris.t")
    first, second = Intent(1, 2), Intent(3, 4, 1, 2)
    found.take(encode_key(key), encode_intents({0: first, 1: first}), next(offsets))
    found.take(encode_key(key), encode_intents({0: second}), next(offsets))
    found.take(encode_key(ResumeKey("g")), encode_resumed({"paris.t": {0: 7}}), next(offsets))
    found.take(b"what", b"ever", next(offsets))
    tp = TopicPartition("paris.t", 0)
    assert found.get("g", tp) == second
    assert found.get("g", TopicPartition("paris.t", 1)) is None
    assert found.resumed("g", tp) == 7
    assert found.resumed("other", tp) is None
    assert found.partitions() == {"g": {tp}}
    found.take(encode_key(key), None, next(offsets))
    assert found.get("g", tp) is None
    assert found.partitions() == {}
    found.clear()
    assert found.resumed("g", tp) is None


def test_a_record_that_is_read_late_does_not_replace_what_was_written_after_it() -> None:
    found, key, tp = StoredIntents(), GroupTopicKey("g", "t"), TopicPartition("t", 0)
    mine, resumed = Intent(3, 4), {"t": {0: 9}}
    found.put(key, {0: mine})
    found.put_resumed("g", resumed)
    found.written({key: 12, ResumeKey("g"): 13})
    for offset in (7, 12):
        found.take(encode_key(key), encode_intents({0: Intent(1, 2)}), offset)
        found.take(encode_key(ResumeKey("g")), None, offset)
    assert (found.get("g", tp), found.resumed("g", tp)) == (mine, 9)
    found.take(encode_key(key), encode_intents({0: Intent(5, 6)}), 14)
    found.take(encode_key(ResumeKey("g")), None, 15)
    assert (found.get("g", tp), found.resumed("g", tp)) == (Intent(5, 6), None)


def test_an_intent_ends_the_resume_of_its_partition_only() -> None:
    found = StoredIntents()
    key = GroupTopicKey("g", "t")
    found.put(key, {1: Intent(1, 2)})
    found.put_resumed("g", {"t": {0: 7, 1: 8}, "u": {0: 9}})
    assert found.resumed_after({key: {0: Intent(3, 4), 1: Intent(1, 2)}}) == {"g": {"t": {1: 8}, "u": {0: 9}}}
    assert found.resumed_after({key: {0: Intent(3, 4)}}) == {"g": {"u": {0: 9}}}
    assert found.resumed_after({key: {1: Intent(1, 2)}, GroupTopicKey("h", "t"): {0: Intent(3, 4)}}) == {}
    found.put_resumed("g", {"t": {0: 7}})
    assert found.resumed_after({key: {0: Intent(3, 4)}}) == {"g": {}}
    found.put_resumed("g", {})
    assert found.resumed("g", TopicPartition("t", 0)) is None


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (encode_intents({}, source="billing"), "billing"),
        (encode_intents({}), "eu.billing"),
        (b'{"v": 1, "source": 7}', "eu.billing"),
        (b"no object", "eu.billing"),
        (None, "eu.billing"),
    ],
)
def test_a_record_without_the_source_s_name_is_of_the_group_in_its_key(value: bytes | None, source: str) -> None:
    assert parse_source(encode_key(GroupTopicKey("eu.billing", "orders")), value) == source


def test_a_record_without_any_group_has_no_source() -> None:
    assert parse_source(None, None) is None
