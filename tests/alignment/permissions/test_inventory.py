"""The records about ACLs in a flow's inventory topic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment import inventory as of_configurations
from mirror.alignment.permissions.decision import Mark
from mirror.alignment.permissions.inventory import (
    Resource,
    StoredAcls,
    encode_acls,
    encode_key,
    parse_acls,
    parse_key,
    resource_of,
)
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tests.alignment.permissions.authorizer import group, topic

_texts = st.text(min_size=1, max_size=8)
_acls = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    _texts,
    _texts,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    _texts,
)


@given(st.dictionaries(_acls, st.sampled_from(Mark), max_size=6))
def test_what_is_stored_is_read(known: dict[AclBinding, Mark]) -> None:
    stored, again = StoredAcls(), StoredAcls()
    for resource, acls in stored.changed(known):
        again.take(encode_key(resource), encode_acls(acls))
    assert again.known() == known
    assert list(again.changed(known)) == []


def test_a_resource_without_acls_is_deleted() -> None:
    stored = StoredAcls()
    stored.put(resource_of(topic("t")), {topic("t"): Mark.MADE})
    stored.put(resource_of(group("g")), {group("g"): Mark.SEEN})
    ((resource, acls),) = stored.changed({group("g"): Mark.SEEN})
    assert (resource, encode_acls(acls)) == (resource_of(topic("t")), None)
    stored.take(encode_key(resource), None)
    assert stored.known() == {group("g"): Mark.SEEN}
    stored.clear()
    assert stored.known() == {}


def test_records_about_configurations_are_others() -> None:
    stored = StoredAcls()
    stored.take(of_configurations.encode_key("t"), b"{}")
    assert stored.known() == {}
    assert of_configurations.parse_key(encode_key(resource_of(topic("t")))) == ""


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"[]",
        b"\xff",
        b'{"acls":["TOPIC"]}',
        b'{"acls":["X","LITERAL","t"]}',
        b'{"acls":["TOPIC","LITERAL",1]}',
    ],
)
def test_a_key_that_is_none_is_passed_over(key: bytes | None) -> None:
    assert parse_key(key) is None


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
def test_an_entry_that_is_none_is_passed_over(entry: object) -> None:
    resource = Resource(ResourceType.TOPIC, PatternType.LITERAL, "t")
    right = ["User:alice", "*", "READ", "ALLOW", "made"]
    value = {"v": 1, "acls": [entry, right]}
    assert parse_acls(resource, json.dumps(value).encode()) == {topic("t"): Mark.MADE}
    for wrong in ({**value, "v": 2}, {"v": 1, "acls": 1}, {"v": 1}):
        assert parse_acls(resource, json.dumps(wrong).encode()) == {}
