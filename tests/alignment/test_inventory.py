"""The records of the inventory topic, as any client may have written them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment.decision import Known, Mark
from mirror.alignment.inventory import (
    StoredInventory,
    TopicInventory,
    encode_key,
    encode_topic,
    parse_key,
    parse_topic,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
known = st.builds(Known, st.sampled_from(Mark), st.none() | texts, st.lists(st.none() | texts, max_size=3).map(tuple))
topics = st.builds(TopicInventory, texts, st.booleans(), st.dictionaries(texts, known, max_size=3))


@given(texts, topics)
def test_what_is_stored_is_read_again(name: str, topic: TopicInventory) -> None:
    assert parse_key(encode_key(name)) == name
    assert parse_topic(encode_topic(topic)) == topic


@pytest.mark.parametrize("key", [None, b"", b"x", b"[]", b'{"topic": 1}', b'{"group": "g"}', b'"\xff"'])
def test_a_key_of_something_else_names_no_topic(key: bytes | None) -> None:
    assert parse_key(key) == ""


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b'{"v": 2, "id": "i", "configs": {}}',
        b'{"v": 1, "id": "", "configs": {}}',
        b'{"v": 1, "id": "i", "configs": []}',
        b"[" * 100_000,
    ],
)
def test_a_value_of_something_else_is_no_inventory(value: bytes | None) -> None:
    assert parse_topic(value) is None


def test_keys_that_cannot_be_read_are_left_out() -> None:
    configs = {
        "good": ["set", "1"],
        "reset": ["set", None, "1"],
        "mark": ["x", "1"],
        "list": [[], "1"],
        "object": [{}, "1"],
        "null": [None, "1"],
        "number": ["set", 1],
        "short": ["set"],
        "text": "set",
    }
    found = parse_topic(json.dumps({"v": 1, "id": "i", "created": "yes", "configs": configs}).encode())
    assert found == TopicInventory("i", False, {"good": Known(Mark.SET, "1"), "reset": Known(Mark.SET, None, ("1",))})


def test_a_later_record_replaces_an_earlier_one_of_its_topic() -> None:
    stored = StoredInventory()
    first, second = TopicInventory("i"), TopicInventory("i", created=True)
    for topic in (first, second):
        stored.take(encode_key("t"), encode_topic(topic))
    assert stored.of("t", "i") == second
    assert stored.of("t", "another id") is None
    stored.take(encode_key("t"), None)
    assert stored.of("t", "i") is None
