"""Which ACLs the target is to have."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import pytest

from mirror.alignment.acl_selection import (
    AclRules,
    AclSides,
    Wanted,
    beginnings_of,
    prefixes_of,
    wanted,
)
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType, write_denial
from tests.alignment.permissions.authorizer import group, named_by, topic

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
    source_topic = named_by(target_topic, namespace)
    return AclRules(
        target_topic, source_topic, namespace, () if identity else prefixes_of(patterns), takes_group, write
    )


def sought(
    made: AclRules,
    *acls: AclBinding,
    source: Collection[str] = ("orders-a", "orders-b", "other"),
    target: Collection[str] = ("paris.orders-a", "paris.orders-b", "own"),
    foreign: Collection[str] = ("own",),
    groups: Collection[str] = (),
    kept: Collection[str] = (),
) -> Wanted:
    """``foreign`` are those of the target's topics that are not the flow's."""
    owned = set(target) - set(foreign)
    sides = AclSides(
        source=acls,
        source_topics=source,
        target_topics=target,
        owned_topics=owned,
        source_groups=groups,
        kept_groups=kept,
    )
    return wanted(made, sides)


def acls(*given: object, **named: object) -> set[AclBinding]:
    return set(sought(*given, **named).acls)  # type: ignore[arg-type]  # passed on


def test_a_literal_acl_is_renamed_with_its_topic_and_others_are_not_the_flow_s() -> None:
    kept = topic("orders-a", principal="User:bob", host="10.0.0.1")
    assert acls(rules("orders-.*"), kept, topic("other")) == {kept._replace(name="paris.orders-a")}
    identity = {"source": ["orders-a", "other"], "target": ["orders-a", "other"]}
    assert acls(rules("orders-.*", identity=True), kept, topic("other"), **identity) == {kept}


def test_a_topic_that_does_not_exist_yet_has_its_acl_where_its_name_is_the_flow_s_alone() -> None:
    """Under the source's names, and where another flow makes such names, the topic may become another's."""
    assert acls(rules("orders-.*"), topic("orders-new")) == {topic("paris.orders-new")}
    for made in (rules("orders-.*", identity=True), replace(rules("orders-.*"), others=("paris.orders-n",))):
        assert acls(made, topic("orders-new"), topic("orders-new", deny=True)) == set()


@pytest.mark.parametrize("identity", [True, False])
def test_a_topic_that_only_the_target_has_gets_no_acl(identity: bool) -> None:
    """Under the source's names it is the target's own; else it is left of a copy, or of another tool's."""
    name = "orders-own" if identity else "paris.orders-own"
    given = [topic("orders-own"), *([topic("orders-own", deny=True)] if identity else [])]
    assert acls(rules("orders-.*", identity=identity), *given, target=[name], foreign=[name]) == set()


@pytest.mark.parametrize("identity", [True, False])
def test_a_topic_that_is_not_the_flow_s_gets_no_acl_and_is_named(identity: bool) -> None:
    """It has the name of a copy. What is denied to all there would close it to its owner."""
    source, given = ["payroll", "orders"], [topic("payroll"), topic("*", deny=True, principal="User:*")]
    names = source if identity else [f"paris.{name}" for name in source]
    found = sought(rules(".*", identity=identity), *given, source=source, target=names, foreign=names[:1])
    assert set(found.acls) == {topic(names[1], deny=True, principal="User:*")}
    assert found.left_out == {ResourceType.TOPIC: {names[0]}}
    write = sought(rules(".*", identity=identity, write=True), topic("payroll", ALL), target=names, foreign=names)
    assert (write.acls, write.left_out) == ({}, found.left_out)


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
    sides = {"target": mixed, "foreign": mixed[1:]}
    assert acls(rules("orders-.*", excluded=".*internal"), given, **sides) == each
    denial = topic("orders-", prefixed=True, deny=True, principal="User:*")
    denied = {topic(one.name, deny=True, principal="User:*") for one in each}
    assert acls(rules("orders-.*", excluded=".*internal"), denial, **sides) == denied


def test_a_prefix_is_denied_wherever_what_is_allowed_keeps_a_longer_one() -> None:
    """A topic that is created between two rounds must not be readable at once by those to whom the source denies it."""
    given, denial = topic("orders-", prefixed=True), topic("*", deny=True, principal="User:bob")
    sides = {"target": ("paris.orders-a", "paris.secret"), "foreign": ["paris.secret"]}
    assert acls(rules(".*"), given, denial, **sides) == {
        topic("paris.orders-", prefixed=True),
        topic("paris.orders-", prefixed=True, deny=True, principal="User:bob"),
        topic("paris.other", deny=True, principal="User:bob"),
    }


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        (("eu.west.orders",), False),
        (("eu.west.",), False),
        (("",), False),
        (("eu.w",), False),
        (("euwest.",), True),
        (("asia.",), True),
    ],
)
def test_a_prefix_that_another_flow_may_make_topics_with_is_none(others: tuple[str, ...], kept: bool) -> None:
    """Names of clusters may have dots: `eu.` covers the copies of eu.west."""
    made = AclRules("eu.{}".format, named_by("eu.{}".format, "eu."), "eu.", ("",), others=others)
    for acl in (topic("*"), topic("west", prefixed=True), topic("*", deny=True, principal="User:*")):
        name = "eu." if acl.name == "*" else "eu.west"
        found = acls(made, acl, source=["west.x"], target=["eu.west.x", "own"])
        assert found == {
            acl._replace(name=name, pattern=PatternType.PREFIXED)
            if kept
            else acl._replace(name="eu.west.x", pattern=PatternType.LITERAL)
        }


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [
        ("orders", "orders"),
        (r"orders\.eu-.*", "orders.eu-"),
        ("orders.eu", "orders"),
        ("ab*", "a"),
        ("ab+", "ab"),
        ("ab?c", "a"),
        ("ab{2}", "a"),
        (r"a\.*", "a"),
        ("a|b", ""),
        ("(?i)a", ""),
        (".*", ""),
    ],
)
def test_what_names_begin_with_that_a_regular_expression_matches(pattern: str, beginning: str) -> None:
    assert beginnings_of([pattern]) == (beginning,)


def test_a_denial_about_an_excluded_topic_limits_the_prefix_that_covers_its_name() -> None:
    given = [topic("orders-", prefixed=True), topic("orders-internal", deny=True), topic("x-internal", deny=True)]
    assert acls(rules("orders-.*", excluded=".*internal"), *given) == {
        topic("paris.orders-", prefixed=True),
        topic("paris.orders-internal", deny=True),
    }


def test_with_the_source_s_names_a_prefix_is_one_acl_for_each_copy() -> None:
    given = topic("orders-", prefixed=True)
    sides = {"target": ["orders-a", "orders-own", "other"], "foreign": ["orders-own"]}
    assert acls(rules(".*", identity=True), given, source=["orders-a", "other"], **sides) == {topic("orders-a")}


def test_the_wildcard_is_never_one_on_the_target() -> None:
    every = topic("*")
    assert acls(rules("orders-a", "other"), every) == {topic("paris.orders-a"), topic("paris.other")}
    assert acls(rules(".*"), every, target=["own"]) == {topic("paris.", prefixed=True)}
    names = acls(rules(".*", identity=True), every, target=["orders-a", "other", "own"])
    assert names == {topic("orders-a"), topic("other")}
    denial = topic("*", deny=True, principal="User:*")
    assert acls(rules("orders-.*"), denial) == {denial._replace(name="paris.orders-", pattern=PatternType.PREFIXED)}


def test_a_denial_is_about_topics_that_only_other_acls_name() -> None:
    """Their topics may be created before the next round."""
    denial = topic("*", deny=True)
    found = acls(rules("x.?"), denial, topic("x1"), source=["x2"])
    assert found == {topic(f"paris.{name}", deny=True) for name in ("x1", "x2")} | {topic("paris.x1")}


def test_a_copy_whose_source_topic_is_not_there_keeps_its_acls() -> None:
    given, kept = topic("orders-", prefixed=True), {"target": ["orders-a"], "source": []}
    assert acls(rules("orders-a", identity=True), given, **kept) == {topic("orders-a")}
    assert acls(rules("orders-a", identity=True), **kept) == set(), "the source's ACL is gone"
    assert acls(rules("orders-a", identity=True), given, **kept | {"target": []}) == set(), "the copy is gone"
    assert acls(rules("orders-a", identity=True), given, **kept, foreign=["orders-a"]) == set(), "it is another topic"
    assert acls(rules("other", identity=True), given, **kept) == set(), "it is not copied any more"


def test_groups_whose_positions_the_flow_keeps_get_acls_if_asked() -> None:
    """A group that only ACLs of the source name may be the target's own."""
    given = [group("billing"), group("b", prefixed=True), group("*", deny=True), group("audit", AclOperation.DELETE)]
    kept = ["billing", "books", "audit"]
    assert acls(rules(".*"), *given, kept=kept) == set()
    found = sought(rules(".*", groups="b.*"), *given, groups=["billing", "bins"], kept=kept)
    assert set(found.acls) == {
        group("billing"),
        group("books"),
        group("billing", deny=True),
        group("books", deny=True),
    }
    assert found.left_out == {ResourceType.GROUP: {"bins"}}
    found = sought(rules(".*", groups="b.*"), group("billing"), group("billing", ALL, deny=True, principal="User:*"))
    assert (found.acls, found.left_out) == ({}, {ResourceType.GROUP: {"billing"}})


def test_acls_follow_topics_and_groups_to_their_new_names() -> None:
    """A rule says nothing about what begins with a prefix: each topic that the flow owns gets ACLs of its own."""
    new = {"orders-a": "eu.a", "orders-b": "eu.b"}
    made = AclRules(
        new.get,
        {name: topic for topic, name in new.items()}.get,
        takes_group=lambda _: True,
        target_group="eu.{}".format,
        source_group=lambda name: name.removeprefix("eu."),
    )
    given = [topic("orders-a"), topic("orders-", prefixed=True, principal="User:bob"), group("billing"), topic("eu.a")]
    found = sought(made, *given, target=["eu.a", "eu.b"], foreign=["eu.b"], groups=["billing"], kept=["billing"])
    assert set(found.acls) == {topic("eu.a"), topic("eu.a", principal="User:bob"), group("eu.billing")}
    assert found.left_out[ResourceType.TOPIC] == {"eu.b"}


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


def test_the_fence_of_a_switch_is_not_brought_to_the_target() -> None:
    fence, other = write_denial("orders-a"), write_denial("orders-a")._replace(principal="User:eve")
    made = rules("orders-.*")
    assert len(sought(made, fence, other).acls) == 2
    assert [acl.principal for acl in sought(replace(made, fenced=True), fence, other).acls] == ["User:eve"]
