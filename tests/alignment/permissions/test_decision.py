"""What is done about each ACL of the target."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.alignment.acl_decision import (
    NO_DRIFT,
    AclDecisions,
    AclMark,
    Reason,
    Verb,
    decide,
    hold_back,
    keep_for_others,
    leave,
    limit,
)
from mirror.alignment.acl_selection import AclRules, AclSides, Wanted, prefixes_of, wanted
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, ResourceType
from tests.alignment.permissions.authorizer import allows, group, is_about, named_by, topic
from tests.examples import examples

READ = topic("paris.t")
DENIED = topic("paris.t", AclOperation.READ, deny=True)


def plan(
    sought: Iterable[AclBinding], there: Iterable[AclBinding], known: dict[AclBinding, AclMark], *, adopt: bool = False
) -> AclDecisions:
    return decide(Wanted(dict.fromkeys(sought), topics=frozenset({"paris.t"})), there, known, adopt=adopt)


def found(made: AclDecisions) -> dict[AclBinding, object]:
    return {acl: one.verb if one.is_due else one.reason for acl, one in made.changes.items() if one.verb or one.reason}


@pytest.mark.parametrize("acl", [READ, DENIED])
@pytest.mark.parametrize(
    ("sought", "there", "mark", "done", "after"),
    [
        (True, False, None, Verb.CREATE, AclMark.MAKING),
        (True, False, AclMark.MAKING, Verb.CREATE, AclMark.MAKING),
        (True, False, AclMark.MADE, Reason.REMOVED, AclMark.MADE),
        (True, False, AclMark.SEEN, Reason.REMOVED, AclMark.SEEN),
        (True, True, None, None, AclMark.SEEN),
        (True, True, AclMark.SEEN, None, AclMark.SEEN),
        (True, True, AclMark.MAKING, None, AclMark.MAKING),
        (True, True, AclMark.MADE, None, AclMark.MADE),
        (False, True, None, Reason.ONLY_ON_TARGET, None),
        (False, True, AclMark.SEEN, Reason.ONLY_ON_TARGET, None),
        (False, True, AclMark.MAKING, Reason.CREATION_UNKNOWN, AclMark.MAKING),
        (False, True, AclMark.MADE, Verb.DELETE, AclMark.MADE),
        (True, False, AclMark.UNWANTED, Verb.CREATE, AclMark.MAKING),
        (True, True, AclMark.UNWANTED, None, AclMark.MADE),
        (False, True, AclMark.UNWANTED, Verb.DELETE, AclMark.MADE),
        (False, False, AclMark.UNWANTED, None, None),
        (False, False, AclMark.MADE, None, None),
        (False, False, AclMark.SEEN, None, None),
    ],
)
def test_only_what_the_flow_has_created_is_deleted(
    acl: AclBinding, sought: bool, there: bool, mark: AclMark | None, done: object, after: AclMark | None
) -> None:
    made = plan([acl] if sought else [], [acl] if there else [], {acl: mark} if mark else {})
    assert (found(made).get(acl), made.known().get(acl)) == (done, after)


def test_what_is_left_opens_nothing() -> None:
    """A plan may lack a denial that the source has got since, or still have one that it does not need any more."""
    made = plan([READ, DENIED], [], {})
    leave(made, [DENIED], Reason.UNKNOWN)
    assert found(made) == {DENIED: Reason.UNKNOWN, READ: Reason.WAITS}
    made = plan([], [READ, DENIED], dict.fromkeys([READ, DENIED], AclMark.MADE))
    leave(made, [READ], Reason.UNKNOWN)
    assert found(made) == {READ: Reason.UNKNOWN, DENIED: Reason.STAYS}
    wide = topic("paris.", prefixed=True)
    made = plan([READ], [wide], {wide: AclMark.MADE})
    leave(made, [READ], Reason.UNKNOWN)
    assert found(made) == {READ: Reason.UNKNOWN, wide: Reason.STAYS}


def test_what_others_have_deleted_on_the_target_is_created_again_by_hand_only() -> None:
    assert found(plan([READ], [], {READ: AclMark.MADE})) == {READ: Reason.REMOVED}
    made = plan([READ], [], {READ: AclMark.MADE}, adopt=True)
    assert (found(made), made.known()) == ({READ: Verb.CREATE}, {READ: AclMark.MAKING})


def test_what_may_be_of_others_is_deleted_by_hand_only() -> None:
    """An ACL has no id: others may have created the same one just before a run was killed that had begun to."""
    made = plan([], [READ], {READ: AclMark.MAKING}, adopt=True)
    assert (found(made), made.known()) == ({READ: Verb.DELETE}, {READ: AclMark.MADE})


def test_what_another_flow_wants_is_deleted_when_that_does_not_want_it_any_more() -> None:
    for others, reason in (({"g": [READ], "h": []}, Reason.OTHER_FLOW), ({"g": [], "h": None}, Reason.UNCERTAIN)):
        made = plan([], [READ], {READ: AclMark.MADE})
        keep_for_others(made, others)
        assert (found(made), made.known()) == ({READ: reason}, {READ: AclMark.UNWANTED})
        assert (reason in NO_DRIFT) is (reason is Reason.OTHER_FLOW)
    made = plan([], [READ], {READ: AclMark.MADE})
    keep_for_others(made, {"g": [DENIED], "h": []})
    assert found(made) == {READ: Verb.DELETE}


def test_acls_of_the_target_s_own_resources_are_not_mentioned() -> None:
    own = [topic("own"), topic("*"), topic("paris.", prefixed=True), group("g")]
    assert found(plan([], own, {})) == {}


def test_what_an_absent_denial_limits_is_not_created() -> None:
    everyone = topic("paris.t", deny=True, principal="User:*")
    others = [topic("paris.u"), group("paris.t"), topic("paris.t", principal="User:bob")]
    made = plan([DENIED, READ, topic("paris.", prefixed=True), *others], [], {DENIED: AclMark.MADE})
    waiting = {READ: Reason.WAITS, topic("paris.", prefixed=True): Reason.WAITS}
    assert found(made) == {DENIED: Reason.REMOVED, **waiting, **dict.fromkeys(others, Verb.CREATE)}
    assert READ not in made.known(), "it was not there, and is not about to be"
    made = plan([everyone, READ, others[2]], [], {everyone: AclMark.SEEN})
    assert found(made) == {everyone: Reason.REMOVED, READ: Reason.WAITS, others[2]: Reason.WAITS}


def test_an_unknown_denial_limits_everything() -> None:
    unknown = topic("t", AclOperation.UNKNOWN, deny=True)
    made = decide(Wanted({READ: None}, unknown=[unknown]), [], {})
    assert found(made) == {READ: Reason.WAITS, unknown: Reason.UNKNOWN}


def test_a_prefixed_denial_limits_what_it_may_be_about() -> None:
    denial = topic("paris.", deny=True, prefixed=True)
    created = [topic("paris.t"), topic("paris.t", prefixed=True), topic("p", prefixed=True), topic("x", prefixed=True)]
    made = plan(created, [], {})
    hold_back(made, [denial])
    assert found(made) == dict(zip(created, [Reason.WAITS, Reason.WAITS, Reason.WAITS, Verb.CREATE], strict=True))


# --- generated ACLs

NAMES = ("a", "ab", "ab-1", "b", "b-internal")
PATTERNS = (".*", "a.*", "ab", "b", "ab-1|b")
_names = st.sampled_from(NAMES)
_ASKED = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)
_operations = st.sampled_from([AclOperation.ALL, *_ASKED])


def _acls(names: tuple[str, ...]) -> st.SearchStrategy[AclBinding]:
    return st.builds(
        topic,
        st.sampled_from([*names, "*"]),
        _operations,
        principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
        deny=st.booleans(),
        prefixed=st.booleans(),
        host=st.sampled_from(["*", "10.0.0.1"]),
    )


def _sets(names: tuple[str, ...]) -> st.SearchStrategy[list[AclBinding]]:
    return st.lists(_acls(names), max_size=6, unique=True).map(
        lambda acls: [acl for acl in acls if acl.name != "*" or acl.pattern.name == "LITERAL"]
    )


@st.composite
def _flows(draw: st.DrawFn) -> tuple[AclRules, str]:
    namespace = draw(st.sampled_from(["paris.", ""]))
    patterns = draw(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True))

    def target_topic(name: str) -> str | None:
        if name.endswith("internal"):
            return None
        matched = (
            name.startswith("a") if pattern == "a.*" else pattern == ".*" or name in pattern.split("|")
            for pattern in patterns
        )
        return namespace + name if any(matched) else None

    prefixes = prefixes_of(patterns) if namespace else ()
    source_topic = named_by(target_topic, namespace)
    return AclRules(target_topic, source_topic, namespace, prefixes, None, draw(st.booleans())), namespace


def _names_at(namespace: str) -> tuple[str, ...]:
    return (*(namespace + name for name in NAMES), f"{namespace}ab-new", "own")


@settings(max_examples=examples(60, 400), deadline=None)
@given(st.data(), _flows())
def test_nothing_is_allowed_that_the_source_denies_or_does_not_allow(
    data: st.DataObject, flow: tuple[AclRules, str]
) -> None:
    """After each of several rounds, for topics of both sides, also for those that are created after the round."""
    rules, namespace = flow
    at_target: dict[AclBinding, None] = dict.fromkeys(data.draw(_sets(_names_at(namespace))))
    of_others, known = dict(at_target), dict[AclBinding, AclMark]()
    for _ in range(data.draw(st.integers(1, 3))):
        source = data.draw(_sets(NAMES))
        topics = data.draw(st.sets(_names))
        there = {*data.draw(st.sets(st.sampled_from(_names_at(namespace))))}
        owned = {name for name in there if data.draw(st.booleans())}
        sides = AclSides(source=source, source_topics=topics, target_topics=there, owned_topics=owned)
        made = decide(wanted(rules, sides), at_target, known)
        created = _carry_out(made, at_target)
        assert set(of_others) <= set(at_target), "what others have created stays"
        known = {
            acl: AclMark.MADE if acl in created else mark for acl, mark in made.known().items() if acl in at_target
        }
        _check(rules, source, at_target, of_others, there, owned)


def _carry_out(made: AclDecisions, at_target: dict[AclBinding, None]) -> set[AclBinding]:
    created = set()
    for permission in (AclPermission.DENY, AclPermission.ALLOW):
        for acl in made.due(Verb.CREATE, permission):
            at_target[acl] = None
            created.add(acl)
    for permission in (AclPermission.ALLOW, AclPermission.DENY):
        for acl in made.due(Verb.DELETE, permission):
            del at_target[acl]
    return created


def _check(
    rules: AclRules,
    source: list[AclBinding],
    at_target: Collection[AclBinding],
    of_others: Collection[AclBinding],
    there: set[str],
    owned: set[str],
) -> None:
    """``there`` are the topics of the target; all others may be created after the round."""
    for name in there - owned:
        assert not [acl for acl in at_target if acl not in of_others and is_about(acl, ResourceType.TOPIC, name)]
    askers = itertools.product(_names_at(rules.namespace), ("User:alice", "User:bob", "User:x"), ("10.0.0.1", "x"))
    for (name, principal, host), operation in itertools.product(askers, _ASKED):
        if not allows(at_target, ResourceType.TOPIC, name, principal, host, operation):
            continue
        if allows(of_others, ResourceType.TOPIC, name, principal, host, operation):
            continue
        original = name.removeprefix(rules.namespace)
        is_copy = name.startswith(rules.namespace) and rules.target_topic(original) == name
        assert is_copy or name not in there
        assert allows(source, ResourceType.TOPIC, original, principal, host, operation)


def test_beyond_the_limit_nothing_is_allowed_and_all_is_denied() -> None:
    """Denials count, as what the flow has created before does. One that is held would allow what is there already."""
    allowed = [topic(f"paris.t{number}") for number in range(3)]
    denied = [topic(f"paris.t{number}", AclOperation.READ, deny=True) for number in range(3)]
    made = plan([*allowed, *denied], [], {})
    limit(made, 5, {READ: AclMark.MADE, topic("paris.u"): AclMark.SEEN})
    assert [found(made)[acl] for acl in denied] == [Verb.CREATE] * 3
    assert [found(made)[acl] for acl in allowed] == [Verb.CREATE, Reason.OVER_LIMIT, Reason.OVER_LIMIT]
    assert allowed[1] not in made.known()
    made = plan([*allowed, *denied], allowed[:1], {allowed[0]: AclMark.MADE})
    limit(made, 1, {allowed[0]: AclMark.MADE})
    assert [found(made)[acl] for acl in denied] == [Verb.CREATE] * 3
    assert made.due(Verb.CREATE, AclPermission.ALLOW) == {}


def test_a_prefix_stays_until_what_replaces_it_is_within_the_limit() -> None:
    """A topic of others under the prefix makes it an ACL for each topic: at the limit, users would lose access."""
    prefix, denial = topic("paris.t", prefixed=True), topic("paris.t0", AclOperation.READ, deny=True)
    replacements = [topic(f"paris.t{number}") for number in range(3)]
    revoked = [prefix._replace(principal="User:bob"), prefix._replace(operation=AclOperation.WRITE)]
    revoked += [prefix._replace(name="paris.u"), prefix._replace(host="10.0.0.1")]
    there = [prefix, denial, *revoked]
    known = dict.fromkeys(there, AclMark.MADE)
    made = plan(replacements, there, known)
    limit(made, len(there) + 2, known)
    created = dict.fromkeys(replacements[:2], Verb.CREATE)
    gone = dict.fromkeys(revoked, Verb.DELETE)
    kept = {prefix: Reason.STAYS, denial: Reason.STAYS}
    assert found(made) == created | gone | kept | {replacements[2]: Reason.OVER_LIMIT}
    assert made.known()[prefix] is AclMark.MADE, "the next round deletes it"
    made = plan(replacements, there, known)
    limit(made, len(there) + 3, known)
    assert list(made.due(Verb.DELETE, AclPermission.ALLOW)) == [prefix, *revoked]
