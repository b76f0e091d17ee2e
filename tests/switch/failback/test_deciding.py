"""Which step of a failback is next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.switch.facts import Ends, Watch
from mirror.switch.failback.deciding import OldFacts, Wish, failback
from mirror.switch.machine import Act, Next, StepResult, Terms
from mirror.switch.record import Command, FailbackRecord, State, SwitchRecord, parse, to_bytes

TERMS = Terms(name="s", quiet_ms=1, deadline_ms=1)
OPEN = SwitchRecord(state=State.DONE, command=Command.FAILOVER, flows=("f",), denied=("t",))
FENCED = FailbackRecord(topics=("t", "u"), denied=("u",), denied_groups=("g",), fence_ms=1, shown_ms=2)
FOUND = replace(FENCED, ends={"t": (9, 5), "u": (4,)}, starts={"t": (7, 5), "u": (4,)}, located_ms=100_000)
DENIED = OldFacts(
    topics={"t": 2, "u": 1},
    denied={"t", "u"},
    denied_everywhere={"t", "u"},
    groups=("g",),
    read_denied=("g",),
    read_denied_everywhere=("g",),
    ends={"t": (Ends(9, 9), Ends(5, 5)), "u": (Ends(4, 4),)},
)
NOW = 100_000
NOTHING = Wish()


def decide(
    back: FailbackRecord,
    facts: OldFacts = DENIED,
    wish: Wish = NOTHING,
    record: SwitchRecord = OPEN,
    terms: Terms = TERMS,
) -> tuple[Next, FailbackRecord]:
    found = failback(wish).decide(replace(record, failback=back), facts, Watch(), terms, NOW)
    return found, found.record.failback


def after(back: FailbackRecord, act: Act, **evidence: str) -> FailbackRecord:
    result = StepResult(ok=True, evidence=evidence)
    return failback(Wish()).applied(replace(OPEN, failback=back), act, result, NOW).failback


@pytest.mark.parametrize("state", [State.READY, State.MOVED, State.ROLLED_BACK])
def test_a_switch_that_no_failover_has_opened_is_refused(state: State) -> None:
    found, _ = decide(FailbackRecord(), record=replace(OPEN, state=state))
    assert found.act is Act.END
    assert f"is {state}: mirror failover s opens the standby first" in found.why


def test_an_old_cluster_that_is_away_is_waited_for() -> None:
    assert decide(FailbackRecord(), OldFacts(source_away="no answer"))[0].act is Act.WAIT


def test_the_denials_that_are_not_there_are_stored_before_they_are_created() -> None:
    facts = replace(DENIED, denied={"t"}, denied_everywhere={"t"}, read_denied=(), read_denied_everywhere=())
    found, back = decide(FailbackRecord(), facts)
    assert (found.act, found.record.fence) == (Act.FENCE, "acl")
    assert (back.topics, back.denied, back.denied_groups, back.fence_ms) == (("t", "u"), ("u",), ("g",), NOW)
    assert decide(back, facts)[0].act is Act.FENCE


def test_what_no_acl_concerns_is_not_closed_by_a_denial() -> None:
    found, back = decide(FailbackRecord(), replace(DENIED, unguarded="topic t: no ACL"))
    assert (found.act, back.fence_ms, "create the ACLs of its clients first" in found.why) == (Act.END, 0, True)


@pytest.mark.parametrize(
    "facts", [replace(DENIED, denied_everywhere={"t"}), replace(DENIED, read_denied_everywhere=())]
)
def test_the_tail_ends_only_behind_a_fence_that_each_broker_shows(facts: OldFacts) -> None:
    intended = replace(FENCED, shown_ms=0)
    assert decide(intended, facts)[0].act is Act.WAIT
    found, back = decide(intended)
    assert (found.act, back.shown_ms, back.ends) == (Act.STORE, NOW, {})
    assert decide(back)[0].act is Act.WAIT  # a broker may still have an accepted request
    found, back = decide(FENCED)
    assert (found.act, back.ends) == (Act.STORE, {"t": (9, 5), "u": (4,)})
    assert decide(back)[0].act is Act.LOCATE


def test_a_fence_that_was_removed_begins_again_unless_the_flows_are_released() -> None:
    facts = replace(DENIED, denied={"t"}, denied_everywhere={"t"})
    exported = replace(FOUND, exported=("t",), skipped=("t",))
    found, back = decide(exported, facts)
    assert (found.act, "deny WRITE on topic u any more: the fence begins again" in found.why) == (Act.STORE, True)
    found, back = decide(back, facts)
    assert (found.act, back.denied, back.denied_groups) == (Act.FENCE, ("u",), ("g",))
    assert (back.ends, back.starts, back.exported, back.skipped) == ({}, FOUND.starts, (), ())
    later = after(replace(back, shown_ms=NOW, ends={"t": (11, 5), "u": (4,)}), Act.LOCATE, t="9,5,0", u="4")
    assert later.starts == {"t": (7, 5, 0), "u": (4,)}, "where the export has begun"
    assert decide(replace(exported, released_ms=1), facts)[0].act is Act.END


def test_an_old_cluster_without_any_of_the_topics_is_searched() -> None:
    found, _ = decide(replace(FENCED, topics=(), denied=()), replace(DENIED, topics={}, ends={}))
    assert found.act is Act.LOCATE


def test_the_tail_is_what_the_search_has_found() -> None:
    located = after(replace(FENCED, ends=FOUND.ends), Act.LOCATE, t="7,5", u="4")
    assert located == FOUND
    broken = failback(Wish()).applied(
        replace(OPEN, failback=FENCED), Act.LOCATE, StepResult(ok=True, evidence={"": "t u", "t": "0"}), NOW
    )
    assert broken.failback.broken == ("t", "u")
    assert decide(located)[0].act is Act.END


def test_flows_are_released_only_behind_exported_tails() -> None:
    wish = Wish(export=True)
    assert decide(FOUND, wish=wish)[0].act is Act.EXPORT
    exported = after(FOUND, Act.EXPORT, t="2")
    assert decide(exported, wish=wish)[0].act is Act.SKIP_TAIL
    skipped = after(exported, Act.SKIP_TAIL)
    assert decide(skipped, wish=wish)[0].act is Act.RELEASE
    released = after(skipped, Act.RELEASE)
    assert decide(released, wish=wish)[0].act is Act.END


def test_what_the_flow_appends_is_confirmed() -> None:
    facts = replace(DENIED, appends={"t"})
    found, _ = decide(FOUND, facts, Wish(export=True))
    assert (found.act, "confirm it by --append" in found.why) == (Act.END, True)
    assert decide(FOUND, facts, Wish(export=True, append=True))[0].act is Act.RELEASE


@pytest.mark.parametrize("highs", [(10, 5), (9, 6), (8, 5), (9,)])
def test_what_is_written_behind_the_fence_is_named_before_the_release(highs: tuple[int, ...]) -> None:
    exported = replace(FOUND, exported=("t",), skipped=("t",))
    moved = replace(DENIED, ends={"t": tuple(Ends(one, one) for one in highs), "u": (Ends(4, 4),)})
    found, back = decide(exported, moved, Wish(export=True))
    assert (found.act, "changed behind the fence" in found.why, "t-" in found.why) == (Act.END, True, True)
    assert (back.fence_ms, back.ends, back.starts, back.exported) == (0, {}, FOUND.starts, ()), "it begins again"
    assert decide(exported, DENIED, Wish(export=True))[0].act is Act.RELEASE
    markers = {("t", number, high) for number, high in enumerate(highs)}
    if len(highs) == 2:
        only = replace(moved, markers=markers)
        assert decide(exported, only, Wish(export=True))[0].act is Act.RELEASE, "a coordinator may end a transaction"
    assert decide(exported, replace(DENIED, ends=None), Wish(export=True))[0].act is Act.WAIT


def test_topics_that_were_made_again_keep_the_flows_held() -> None:
    broken = replace(FOUND, broken=("t",))
    facts = replace(DENIED, appends={"t"})
    assert decide(broken, facts, Wish(export=True, append=True))[0].act is Act.EXPORT
    found, _ = decide(replace(broken, exported=("t",)), facts, Wish(export=True, append=True))
    assert (found.act, "so the flows stay held" in found.why) == (Act.END, True)


def test_exactly_the_denials_of_this_switch_are_lifted() -> None:
    lift = Wish(lift=True)
    assert decide(FOUND, wish=lift)[0].act is Act.UNFENCE
    free = replace(DENIED, denied={"others"}, read_denied=("others",))
    found, back = decide(FOUND, free, lift)
    assert (found.act, back.lifted_ms) == (Act.STORE, NOW)
    assert decide(back, free, lift)[0].act is Act.END
    assert decide(replace(back, released_ms=1), free)[0].act is Act.END
    found, again = decide(back, free)
    assert (found.act, again.lifted_ms, again.fence_ms) == (Act.STORE, 0, 0), "nothing was released yet"


def test_a_hook_fences_and_lifts() -> None:
    terms = replace(TERMS, fence="hook")
    machine = failback(Wish())
    found = machine.decide(OPEN, OldFacts(topics={"t": 1}), Watch(), terms, NOW)
    assert (found.act, found.record.fence, found.record.hook_fenced) == (Act.FENCE, "hook", True)
    shown = machine.applied(found.record, Act.FENCE, StepResult(ok=True), NOW)
    assert shown.failback.shown_ms == NOW
    lift = failback(Wish(lift=True))
    assert lift.decide(shown, OldFacts(), Watch(), terms, NOW).act is Act.UNFENCE
    done = lift.applied(shown, Act.UNFENCE, StepResult(ok=True), NOW)
    assert lift.decide(done, OldFacts(), Watch(), terms, NOW).act is Act.END


def test_what_was_done_is_stored() -> None:
    record = replace(OPEN, failback=FOUND)
    assert parse(to_bytes(record)) == record
