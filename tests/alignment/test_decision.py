"""What is done about a key, for every state of both sides and of the inventory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment.config_decision import (
    Act,
    ConfigMark,
    ConfigRules,
    Decision,
    Known,
    Observed,
    Reason,
    decide,
    equal,
)

KEY = "retention.ms"
SET_1, SEEN_1, DIFFERED = Known(ConfigMark.SET, "1"), Known(ConfigMark.SEEN, "1"), Known(ConfigMark.DIFFERED)
NOTHING, SET, RESET = Act.NOTHING, Act.SET, Act.RESET

TABLE: list[tuple[str | None, str | None, Known | None, bool, Act, Reason | None]] = [
    # source, target, known, begun -> act, reason
    (None, None, None, False, NOTHING, None),
    ("1", "1", None, False, NOTHING, None),
    # before there was an inventory, all that differs is left
    ("1", None, None, False, NOTHING, Reason.BEFORE),
    ("1", "2", None, False, NOTHING, Reason.BEFORE),
    (None, "2", None, False, NOTHING, Reason.ONLY_ON_TARGET),
    ("1", None, DIFFERED, True, NOTHING, Reason.BEFORE),
    ("1", "2", DIFFERED, True, NOTHING, Reason.BEFORE),
    (None, "2", DIFFERED, True, NOTHING, Reason.ONLY_ON_TARGET),
    ("1", "1", DIFFERED, True, NOTHING, None),
    # later, what the source sets is set, unless others have set it on the target
    ("1", None, None, True, SET, None),
    ("1", "2", None, True, NOTHING, Reason.CHANGED),
    (None, "2", None, True, NOTHING, Reason.ONLY_ON_TARGET),
    # what this flow has set follows the source
    ("2", "1", SET_1, True, SET, None),
    (None, "1", SET_1, True, RESET, None),
    # unless others have changed it, or reset it
    ("1", "3", SET_1, True, NOTHING, Reason.CHANGED),
    ("2", "3", SET_1, True, NOTHING, Reason.CHANGED),
    ("1", None, SET_1, True, NOTHING, Reason.CHANGED),
    (None, "3", SET_1, True, NOTHING, Reason.ONLY_ON_TARGET),
    # what was the same on both sides follows the source, but is not reset
    ("2", "1", SEEN_1, True, SET, None),
    (None, "1", SEEN_1, True, NOTHING, Reason.NOT_OWN),
    (None, "3", SEEN_1, True, NOTHING, Reason.ONLY_ON_TARGET),
    ("1", "3", SEEN_1, True, NOTHING, Reason.CHANGED),
    # a change that was stored, and may not have been made
    ("2", "1", Known(ConfigMark.SET, "2", ("1",)), True, SET, None),
    ("3", "1", Known(ConfigMark.SET, "2", ("1",)), True, SET, None),
    ("3", "2", Known(ConfigMark.SET, "2", ("1",)), True, SET, None),
    ("2", None, Known(ConfigMark.SET, "2", (None,)), True, SET, None),
    (None, "1", Known(ConfigMark.SET, None, ("1",)), True, RESET, None),
    ("2", "9", Known(ConfigMark.SET, "2", ("1",)), True, NOTHING, Reason.CHANGED),
]


@pytest.mark.parametrize(("source", "target", "known", "begun", "act", "reason"), TABLE)
def test_what_is_done(
    source: str | None, target: str | None, known: Known | None, begun: bool, act: Act, reason: Reason | None
) -> None:
    found = decide(KEY, Observed(source, target, known, begun))
    assert (found.act, found.reason) == (act, reason)


values = st.sampled_from([None, "1", "2", "3"])
marks = st.one_of(
    st.none(),
    st.just(DIFFERED),
    st.builds(Known, st.just(ConfigMark.SEEN), st.sampled_from(["1", "2", "3"])),
    st.builds(Known, st.just(ConfigMark.SET), values, st.lists(values, max_size=3).map(tuple)),
)
observations = st.builds(Observed, values, values, marks, st.booleans()).map(
    lambda seen: seen if seen.begun else seen._replace(known=None)
)


@given(observations, st.booleans())
def test_only_what_the_flow_knows_is_changed_unless_it_is_forced(seen: Observed, forced: bool) -> None:
    found = decide(KEY, seen, forced=forced)
    if seen.source == seen.target:
        assert found.act is NOTHING
        assert found.reason is None
    elif forced:
        assert found.act is (RESET if seen.source is None else SET)
    elif found.act is RESET:
        assert seen.known is not None
        assert seen.known.mark is ConfigMark.SET
        assert seen.target in {seen.known.value, *seen.known.before}
    elif found.act is SET:
        others_have_not_set_it = seen.known is None or seen.target in {seen.known.value, *seen.known.before}
        assert seen.begun
        assert others_have_not_set_it
        assert seen.known is not None or seen.target is None
    else:
        assert found.reason is not None


@given(observations, st.booleans())
def test_the_inventory_has_both_values_before_a_change(seen: Observed, forced: bool) -> None:
    found = decide(KEY, seen, forced=forced)
    if found.act is not NOTHING:
        assert found.known is not None
        assert found.known.mark is ConfigMark.SET
        assert found.known.value == seen.source
        assert seen.target in found.known.before
        settled = found.known.settled()
        assert settled == (None if seen.source is None else Known(ConfigMark.SET, seen.source))


@given(observations, values)
def test_a_crash_between_the_inventory_and_the_change_is_continued(seen: Observed, later: str | None) -> None:
    """The change was made or not, and the source may have another value since."""
    first = decide(KEY, seen)
    if first.act is NOTHING:
        return
    for target in (seen.target, seen.source):
        again = decide(KEY, Observed(later, target, first.known, begun=True))
        assert again.reason is None
        assert again.act is (NOTHING if later == target else RESET if later is None else SET)


@given(observations)
def test_a_decision_without_change_is_stable(seen: Observed) -> None:
    first = decide(KEY, seen)
    if first.act is NOTHING:
        again = decide(KEY, seen._replace(known=first.known, begun=True))
        if seen.begun or first.reason is not Reason.BEFORE:
            assert again == first
        else:
            assert (again.act, again.reason) == (NOTHING, Reason.BEFORE)


def test_after_a_change_both_sides_are_in_step() -> None:
    for source, target, known, begun in itertools.product(("1", None), ("2", None), (SET_1, None), (True, False)):
        seen = Observed(source, target, known if begun else None, begun)
        found = decide(KEY, seen, forced=True)
        if found.act is not NOTHING:
            assert found.known is not None
            after = found.known.settled()
            assert decide(KEY, Observed(source, source, after, begun=True)) == Decision(NOTHING, after)


@pytest.mark.parametrize(
    ("key", "wanted", "target", "waits"),
    [
        ("cleanup.policy", "compact", "delete", True),
        ("cleanup.policy", "compact,delete", None, True),
        ("cleanup.policy", None, "delete", True),
        ("cleanup.policy", "delete", "compact", False),
        ("cleanup.policy", "compact", "compact,delete", False),
        ("message.timestamp.type", "LogAppendTime", None, True),
        ("message.timestamp.type", "CreateTime", "LogAppendTime", True),
        ("message.timestamp.before.max.ms", "1000", None, True),
        ("message.timestamp.after.max.ms", None, "1000", True),
        ("max.message.bytes", "1000", "2000", True),
        ("max.message.bytes", "1000", None, True),
        ("max.message.bytes", None, "2000", True),
        ("max.message.bytes", "3000", "2000", False),
        ("retention.ms", "1000", "2000", False),
    ],
)
def test_what_a_running_copy_depends_on_waits(key: str, wanted: str | None, target: str | None, waits: bool) -> None:
    known = Known(ConfigMark.SET, target)
    seen = Observed(wanted, target, known, begun=True)
    found = decide(key, seen, beside_copies=True)
    assert (found.reason is Reason.WAITS) == waits
    if waits:
        assert found == Decision(NOTHING, known, Reason.WAITS)
    assert decide(key, seen).reason is None, "at the next start"


def test_the_order_of_cleanup_policies_does_not_matter() -> None:
    assert equal("cleanup.policy", "compact,delete", "delete, compact")
    assert not equal("cleanup.policy", "compact", "compact,delete")
    assert not equal("cleanup.policy", "delete", None)
    assert not equal(KEY, "a,b", "b,a")


def test_excluded_keys_are_left_unless_they_are_overridden() -> None:
    rules = ConfigRules(excludes=lambda key: key.startswith("x"), overrides={"x.o": "9", "a": "8"})
    assert rules.wanted({"x.a": "1", "x.o": "2", "a": "3", "b": "4"}) == {"a": "8", "b": "4", "x.o": "9"}
    assert [key for key in ("x.a", "x.o", "a", "z") if rules.manages(key)] == ["x.o", "a", "z"]
