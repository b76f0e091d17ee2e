"""The records of the inventory topic, as any client may have written them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment.acl_decision import AclMark
from mirror.alignment.config_decision import ConfigMark, Known
from mirror.alignment.inventory_records import (
    CreatedTopic,
    Inventory,
    Key,
    Reduction,
    Resource,
    SourceTopic,
    Subject,
    TopicConfigs,
    parse_key,
    record_of,
    resource_of,
)
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tests.alignment.permissions.authorizer import group, topic

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=6)
"""What brokers have as ids and names; of what is only shown, control characters are escaped."""
times = st.integers(0, 2**45)
known = st.builds(
    Known, st.sampled_from(ConfigMark), st.none() | texts, st.lists(st.none() | texts, max_size=3).map(tuple)
)
sources = st.builds(SourceTopic, name=names, topic_id=names, cluster_id=names)
values = {
    Subject.CONFIGS: st.builds(TopicConfigs, texts, st.booleans(), st.dictionaries(texts, known, max_size=3)),
    Subject.CREATED: st.builds(
        CreatedTopic,
        topic_id=names,
        source=sources,
        again=st.just("") | names,
        gone_ms=times,
        deleting=st.booleans(),
        deleted_ms=times,
        cleaned_ms=times,
    ),
    Subject.INTENT: sources,
    Subject.ADOPTED: texts,
    Subject.REDUCED: st.builds(
        Reduction,
        topic_id=names,
        seen_ms=times,
        wanted=st.dictionaries(names, st.none() | names, max_size=2),
        done_ms=times,
    ),
}
acls = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    texts,
    texts,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    texts,
)


@given(st.data(), texts, st.sampled_from(sorted(values)))
def test_what_is_stored_is_read_again_and_what_is_removed_is_not(data: st.DataObject, name: str, of: Subject) -> None:
    found, key, value = Inventory(), Key(of, name), data.draw(values[of])
    found.take(*record_of(key, value))
    assert {subject: found.get(Key(subject, name)) for subject in values} == dict.fromkeys(values) | {of: value}
    found.take(*record_of(key, None))
    assert found.get(key) is None


def test_a_long_value_of_a_configuration_is_stored_whole() -> None:
    """Of a part, the next round would find that others had changed the target."""
    throttled = ",".join(f"{partition}:{broker}" for partition in range(500) for broker in range(3))
    before = throttled.replace("0", "7")
    configs = TopicConfigs(
        "id", configs={"leader.replication.throttled.replicas": Known(ConfigMark.SET, throttled, (before,))}
    )
    key, inventory = Key(Subject.CONFIGS, "t"), Inventory()
    stored = record_of(key, configs)
    inventory.take(stored.key, stored.value)
    assert inventory.get(key) == configs


@given(st.dictionaries(acls, st.sampled_from(AclMark), max_size=6))
def test_the_acls_of_all_resources_are_read_again(marks: dict[AclBinding, AclMark]) -> None:
    found = Inventory()
    for key, value in found.acl_records(marks).items():
        found.take(*record_of(key, value))
    assert found.acls == marks


def test_a_resource_without_acls_is_deleted() -> None:
    found = Inventory()
    for acl in (topic("t"), group("g")):
        found.put(Key(Subject.ACLS, resource_of(acl)), {acl: AclMark.MADE})
    records = found.acl_records({group("g"): AclMark.MADE})
    assert [value for _, value in records.items()] == [None, {group("g"): AclMark.MADE}]
    for key, value in records.items():
        found.take(*record_of(key, value))
    assert found.acls == {group("g"): AclMark.MADE}
    found.clear()
    assert found.acls == {}


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"x",
        b"[]",
        b'"\xff"',
        b'{"topic": 1}',
        b'{"group": "g"}',
        b'{"acls":["TOPIC"]}',
        b'{"acls":["X","LITERAL","t"]}',
        b'{"acls":["TOPIC","LITERAL",1]}',
    ],
)
def test_a_key_of_something_else_says_nothing(key: bytes | None) -> None:
    assert parse_key(key) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b'{"v": 2, "id": "i", "configs": {}, "topic_id": "i", "name": "n", "cluster_id": "c"}',
        b'{"v": 1, "id": "", "configs": {}}',
        b'{"v": 1, "id": "i", "configs": []}',
        b'{"v": 1, "topic_id": 1, "source": {"name": "t"}}',
        b"[" * 100_000,
    ],
)
def test_a_value_of_something_else_says_nothing(value: bytes | None) -> None:
    found = Inventory()
    for subject in values:
        found.take(record_of(Key(subject, "t"), None).key, value)
    assert {subject: found.get(Key(subject, "t")) for subject in values} == dict.fromkeys(values)


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
    found = Inventory()
    found.take(b'{"topic":"t"}', json.dumps({"v": 1, "id": "i", "created": "yes", "configs": configs}).encode())
    expected = {"good": Known(ConfigMark.SET, "1"), "reset": Known(ConfigMark.SET, None, ("1",))}
    assert found.configs_of("t", "i") == TopicConfigs("i", False, expected)
    assert found.configs_of("t", "another id") is None


@pytest.mark.parametrize(
    "entry",
    [
        1,
        [],
        ["User:a", "*", "READ", "ALLOW"],
        ["User:a", "*", "READ", "ALLOW", 1],
        ["User:a", "*", "X", "ALLOW", "made"],
        ["User:a", "*", "READ", "ALLOW", "x"],
    ],
)
def test_an_acl_that_cannot_be_read_is_left_out(entry: object) -> None:
    key = record_of(Key(Subject.ACLS, Resource(ResourceType.TOPIC, PatternType.LITERAL, "t")), None).key
    right = {"v": 1, "acls": [entry, ["User:alice", "*", "READ", "ALLOW", "made"]]}
    found = Inventory()
    found.take(key, json.dumps(right).encode())
    assert found.acls == {topic("t"): AclMark.MADE}
    for wrong in ({**right, "v": 2}, {"v": 1, "acls": 1}, {"v": 1}):
        found.take(key, json.dumps(wrong).encode())
        assert found.acls == {}


def test_a_topic_is_claimed_by_its_creation_its_configurations_or_a_person() -> None:
    found = Inventory()
    source = SourceTopic(name="t", topic_id="s", cluster_id="c")
    records: list[tuple[Subject, Any]] = [
        (Subject.CREATED, CreatedTopic(topic_id="1", source=source)),
        (Subject.CONFIGS, TopicConfigs("2", created=True)),
        (Subject.ADOPTED, "3"),
    ]
    for count, (subject, value) in enumerate(records, 1):
        found.put(Key(subject, "t"), value)
        assert len(found.claimed_ids("t")) == count
    found.put(Key(Subject.CONFIGS, "t"), TopicConfigs("2"))
    found.put(Key(Subject.INTENT, "t"), source)
    assert found.claimed_ids("t") == {"1", "3"}, "neither seeing it nor being about to create it makes it the flow's"
