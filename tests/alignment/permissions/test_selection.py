"""Which ACLs the target is to have."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from mirror.alignment.permissions.selection import AclRules, Sides, Wanted, prefixes_of, wanted
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tests.alignment.permissions.authorizer import group, topic

ALL, WRITE, READ = AclOperation.ALL, AclOperation.WRITE, AclOperation.READ
CONFIGS = AclOperation.DESCRIBE_CONFIGS


def rules(
    *patterns: str, identity: bool = False, write: bool = False, groups: str = "", excluded: str = "-"
) -> AclRules:
    namespace = "" if identity else "paris."

    def target_topic(name: str) -> str | None:
        matched = any(re.fullmatch(pattern, name) for pattern in patterns)
        return namespace + name if matched and not re.fullmatch(excluded, name) else None

    takes_group = (lambda name: bool(re.fullmatch(groups, name))) if groups else None
    return AclRules(target_topic, namespace, () if identity else prefixes_of(patterns), takes_group, write)


def sought(
    made: AclRules,
    *acls: AclBinding,
    source: Collection[str] = ("orders-a", "orders-b", "other"),
    target: Collection[str] = ("paris.orders-a", "paris.orders-b", "own"),
    known: Collection[AclBinding] = (),
    groups: Collection[str] = (),
) -> Wanted:
    sides = Sides(source=acls, source_topics=source, target_topics=target, known=known, source_groups=groups)
    return wanted(made, sides)


def acls(*given: object, **named: object) -> set[AclBinding]:
    return set(sought(*given, **named).acls)  # type: ignore[arg-type]  # passed on


def test_a_literal_acl_is_renamed_with_its_topic_and_others_are_not_the_flow_s() -> None:
    kept = topic("orders-a", principal="User:bob", host="10.0.0.1")
    assert acls(rules("orders-.*"), kept, topic("other")) == {kept._replace(name="paris.orders-a")}
    assert acls(rules("orders-.*", identity=True), kept, topic("other")) == {kept}


def test_a_topic_that_does_not_exist_yet_has_its_acl() -> None:
    assert acls(rules("orders-.*"), topic("orders-new")) == {topic("paris.orders-new")}


@pytest.mark.parametrize("identity", [True, False])
def test_a_topic_that_only_the_target_has_gets_no_acl(identity: bool) -> None:
    """Under the source's names it is the target's own; else it is left of a copy, or of another tool's."""
    name = "orders-own" if identity else "paris.orders-own"
    given = [topic("orders-own"), *([topic("orders-own", deny=True)] if identity else [])]
    assert acls(rules("orders-.*", identity=identity), *given, target=[name]) == set()


def test_what_allows_changes_is_left_out_unless_asked() -> None:
    given = [topic("orders-a", one) for one in (WRITE, AclOperation.ALTER_CONFIGS, AclOperation.DELETE, READ)]
    found = sought(rules("orders-.*"), *given)
    assert (set(found.acls), found.changing) == ({topic("paris.orders-a")}, 3)
    found = sought(rules("orders-.*", write=True), *given)
    assert (set(found.acls), found.changing) == ({one._replace(name="paris.orders-a") for one in given}, 0)


def test_all_is_what_of_it_is_reading() -> None:
    found = sought(rules("orders-.*"), topic("orders-a", ALL))
    assert (set(found.acls), found.changing) == ({topic("paris.orders-a"), topic("paris.orders-a", CONFIGS)}, 1)
    assert acls(rules("orders-.*", write=True), topic("orders-a", ALL)) == {topic("paris.orders-a", ALL)}


@pytest.mark.parametrize("operation", [ALL, WRITE, READ])
def test_a_denial_is_kept(operation: AclOperation) -> None:
    given = topic("orders-a", operation, deny=True)
    assert acls(rules("orders-.*"), given) == {given._replace(name="paris.orders-a")}


def test_a_prefix_of_copies_alone_stays_a_prefix() -> None:
    assert acls(rules("orders-.*"), topic("orders-", prefixed=True)) == {topic("paris.orders-", prefixed=True)}
    assert acls(rules(".*"), topic("ord", prefixed=True)) == {topic("paris.ord", prefixed=True)}


def test_a_prefix_that_is_about_more_is_limited_to_what_is_copied() -> None:
    given = topic("o", prefixed=True)
    assert acls(rules("orders-.*"), given) == {topic("paris.orders-", prefixed=True)}
    assert acls(rules("orders-a"), given) == {topic("paris.orders-a")}
    assert acls(rules("orders-.*", "other"), given) == {topic("paris.orders-", prefixed=True), topic("paris.other")}


def test_a_prefix_that_a_topic_of_the_target_has_by_itself_is_one_acl_for_each_copy() -> None:
    given, mixed = topic("orders-", prefixed=True), ("paris.orders-a", "paris.orders-internal")
    each = {topic("paris.orders-a"), topic("paris.orders-b")}
    assert acls(rules("orders-.*", excluded=".*internal"), given, target=mixed) == each
    denial = topic("orders-", prefixed=True, deny=True)
    assert acls(rules("orders-.*", excluded=".*internal"), denial, target=mixed) == {
        denial._replace(name="paris.orders-")
    }, "what is denied by a prefix is denied for copies that are created later, too"


def test_a_denial_about_an_excluded_topic_limits_the_prefix_that_covers_its_name() -> None:
    given = [topic("orders-", prefixed=True), topic("orders-internal", deny=True), topic("x-internal", deny=True)]
    assert acls(rules("orders-.*", excluded=".*internal"), *given) == {
        topic("paris.orders-", prefixed=True),
        topic("paris.orders-internal", deny=True),
    }


def test_with_the_source_s_names_a_prefix_is_one_acl_for_each_copy() -> None:
    given = topic("orders-", prefixed=True)
    found = acls(rules(".*", identity=True), given, source=["orders-a", "other"], target=["orders-own"])
    assert found == {topic("orders-a")}


def test_the_wildcard_is_never_one_on_the_target() -> None:
    every = topic("*")
    assert acls(rules("orders-a", "other"), every) == {topic("paris.orders-a"), topic("paris.other")}
    assert acls(rules(".*"), every, target=["own"]) == {topic("paris.", prefixed=True)}
    names = acls(rules(".*", identity=True), every, target=["own"])
    assert names == {topic("orders-a"), topic("orders-b"), topic("other")}
    denial = topic("*", deny=True, principal="User:*")
    assert acls(rules("orders-.*"), denial) == {denial._replace(name="paris.orders-", pattern=PatternType.PREFIXED)}


def test_a_denial_is_about_topics_that_only_other_acls_name() -> None:
    """Their topics may be created before the next round."""
    denial = topic("*", deny=True)
    found = acls(rules("x.?", identity=True), denial, topic("x1"), source=["x2"])
    assert found == {topic("x1"), topic("x1", deny=True), topic("x2", deny=True)}


def test_a_copy_whose_source_topic_is_not_there_keeps_its_acls() -> None:
    given, made = topic("orders-", prefixed=True), topic("orders-a")
    kept = {"known": [made], "target": ["orders-a"], "source": []}
    assert acls(rules("orders-a", identity=True), given, **kept) == {made}
    assert acls(rules("orders-a", identity=True), **kept) == set(), "the source's ACL is gone"
    assert acls(rules("orders-a", identity=True), given, **kept | {"target": []}) == set(), "the copy is gone"
    assert acls(rules("other", identity=True), given, **kept) == set(), "it is not copied any more"


def test_groups_are_brought_if_asked() -> None:
    given = [group("billing"), group("b", prefixed=True), group("*", deny=True), group("audit", AclOperation.DELETE)]
    assert acls(rules(".*"), *given) == set()
    found = sought(rules(".*", groups="b.*"), *given, groups=["billing", "books", "audit"])
    assert set(found.acls) == {
        group("billing"),
        group("books"),
        group("billing", deny=True),
        group("books", deny=True),
    }
    again = acls(rules(".*", groups="b.*"), *given, known=[group("books")])
    assert group("books") in again, "its offsets have expired on the source"


def test_what_this_version_does_not_know_is_named() -> None:
    unknown = [
        topic("orders-a", AclOperation.UNKNOWN),
        topic("orders-a")._replace(pattern=PatternType.UNKNOWN),
        topic("orders-a")._replace(permission=AclPermission.UNKNOWN),
    ]
    found = sought(rules("orders-.*"), *unknown, topic("other", AclOperation.UNKNOWN))
    assert (found.acls, found.unknown) == ({}, unknown)


def test_other_resources_are_left_alone() -> None:
    other = topic("orders-a")._replace(resource_type=ResourceType.TRANSACTIONAL_ID)
    assert acls(rules(".*", groups=".*", write=True), other) == set()


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (".*", ""),
        (".+", ""),
        ("orders-.*", "orders-"),
        (r"eu\.orders\..*", "eu.orders."),
        ("eu.orders.*", "eu.orders"),
        ("a_b.+", "a_b"),
    ],
)
def test_a_regular_expression_may_match_all_names_with_a_prefix(pattern: str, prefix: str) -> None:
    assert prefixes_of([pattern]) == (prefix,)
    if not pattern.endswith("+"):
        assert re.fullmatch(pattern, prefix)
    assert re.fullmatch(pattern, prefix + "x.y-z")


@pytest.mark.parametrize(
    "pattern", ["orders", "(a|b).*", "a*.*", "a?.*", r"\d.*", "[a-c].*", ".*-a", "a.*b.*", "(?i)a.*", "a{2}.*"]
)
def test_others_are_taken_topic_by_topic(pattern: str) -> None:
    assert prefixes_of([pattern]) == ()
