"""What a failover does next."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from mirror.switch.facts import Facts, FlowLatch, Watch
from mirror.switch.failover.deciding import FAILOVER, FENCE_MS, applied, decide
from mirror.switch.machine import Act, Next, StepResult, Terms
from mirror.switch.record import Command, State, SwitchRecord, begin, parse, to_bytes

TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=90_000, switches=True, back=("back",))
AWAY: Final = Facts(
    source_away="it does not answer",
    source_id="old",
    progress={"t": (7, 0)},
    topic_ids={"t": "id"},
    positions={"g": "hash"},
    latches={"f": FlowLatch(is_held=False, generation=0, by="")},
    target_ends={"t": (9, 0)},
)
HELD: Final = FlowLatch(is_held=True, generation=1, by="switch s")
NOW: Final = 1_000_000
BEHIND: Final = replace(
    begin(("f",), Command.FAILOVER), clusters=("old", "new"), topics=("t",), rested={"f": 1}, ended={"f": 1}
)
READY: Final = BEHIND.entered(State.READY, NOW)
MOVED: Final = READY.entered(State.MOVED, NOW)


def step(record: SwitchRecord, facts: Facts, terms: Terms = TERMS, now_ms: int = NOW) -> Next:
    return decide(record, facts, Watch(), terms, now_ms)


def test_what_the_standby_shows_is_stored_first() -> None:
    found = step(begin(("f",), FAILOVER.command), AWAY)
    assert found.record.state is State.READY
    assert (found.record.topics, found.record.clusters) == (("t",), ("old", ""))
    assert (found.record.copied, found.record.topic_ids) == ({"t": (7, 0)}, {"t": "id"})
    assert parse(to_bytes(found.record)) == found.record
    nothing = step(begin(("f",), FAILOVER.command), replace(AWAY, topic_ids={}))
    assert (nothing.act, nothing.record.state) == (Act.END, State.PLANNED)
    assert "no progress" in nothing.why


@pytest.mark.parametrize("record", [begin(("f",), Command.FAILOVER), READY, MOVED])
def test_a_source_that_answers_is_refused_at_each_step_before_open(record: SwitchRecord) -> None:
    found = step(record, replace(AWAY, source_away=""))
    assert (found.act, found.record) == (Act.END, record)
    assert "--although-reachable" in found.why
    fenced = step(replace(record, fence="acl", fence_ms=NOW), replace(AWAY, source_away=""))
    assert fenced.why.endswith("--rollback removes the fence")


def test_the_copies_are_ended_behind_the_latch_of_this_failover() -> None:
    record = replace(READY, rested={}, ended={})
    assert (step(record, AWAY).act, step(record, AWAY).record.latches) == (Act.HOLD, {"f": 1})
    other = replace(AWAY, latches={"f": FlowLatch(is_held=True, generation=1, by="switch other")})
    assert (step(record, other).act, step(record, other).record.latches) == (Act.HOLD, {"f": 2})
    held = replace(AWAY, latches={"f": HELD})
    after = applied(step(record, held).record, Act.HOLD, StepResult(ok=True), NOW)
    assert step(after, held).act is Act.END_COPIES
    ended = applied(after, Act.END_COPIES, StepResult(ok=True), NOW)
    assert step(ended, held).record.state is State.MOVED
    again = replace(AWAY, latches={"f": HELD._replace(generation=3)})
    assert step(MOVED, again).act is Act.HOLD, "it was released meanwhile"
    rested = applied(step(MOVED, again).record, Act.HOLD, StepResult(ok=True), NOW)
    assert step(rested, again).act is Act.END_COPIES


def test_the_target_opens_with_what_it_has_then() -> None:
    held = replace(AWAY, latches={"f": HELD})
    pending = step(MOVED, replace(held, open_transactions={"mirror.f.t.0": "t-0"}))
    assert (pending.act, pending.record) == (Act.END_COPIES, MOVED)
    found = step(MOVED, held).record
    assert (found.state, found.copied, found.groups, found.target_ends) == (
        *(State.OPEN, {"t": (7, 0)}, {"g": "hash"}, {"t": (9, 0)}),
    )
    lifted = step(found, Facts(denied_on_target={"t"}))
    assert lifted.act is Act.LIFT
    assert step(found, Facts(denied_on_target=set())).act is Act.SWITCH
    done = step(replace(found, switched_ms=NOW), Facts(denied_on_target=set()))
    assert done.record.state is State.REVERSED, "the way back is not released"


def test_a_topic_that_no_acl_concerns_is_left_open_and_the_record_says_so() -> None:
    terms = replace(TERMS, although_reachable=True)
    record = replace(READY, topics=("t", "u"))
    shown = replace(AWAY, source_away="", denied=set(), denied_everywhere=set(), unguarded={"u"})
    intent = step(record, shown, terms)
    assert (intent.act, intent.record.denied) == (Act.FENCE, ("t",))
    half = step(intent.record, replace(shown, denied={"t"}), terms)
    assert (half.act, half.record.unfenced) == (Act.WAIT, "")
    whole = step(intent.record, replace(shown, denied={"t"}, denied_everywhere={"t"}), terms)
    assert (whole.act, "no ACL of the source concerns topic u" in whole.record.unfenced) == (Act.STORE, True)


def test_a_source_that_answers_is_fenced_on_each_broker_before_the_flows_are_held() -> None:
    terms = replace(TERMS, although_reachable=True)
    shown = replace(AWAY, source_away="", denied={"u"}, denied_everywhere=set())
    intent = step(READY, shown, terms)
    assert (intent.act, intent.record.denied, intent.record.fence) == (Act.FENCE, ("t",), "acl")
    assert step(READY, replace(shown, denied={"t"}), terms).record.denied == (), "others have created it"
    half = replace(shown, denied={"t"})
    assert step(intent.record, half, terms).act is Act.WAIT
    whole = replace(half, denied_everywhere={"t"})
    assert step(intent.record, whole, terms).record.state is State.FENCED
    back = step(MOVED, replace(whole, latches={"f": HELD}), terms)
    assert back.record.state is State.READY, "it has come back"


def test_a_source_that_cannot_be_fenced_keeps_the_failover_for_a_while_only() -> None:
    terms = replace(TERMS, although_reachable=True)
    unread = replace(AWAY, source_away="", denied=None)
    assert step(READY, unread, terms).act is Act.WAIT
    late = step(READY, unread, terms, NOW + FENCE_MS + 1)
    assert late.record.unfenced
    assert step(late.record, unread, terms, NOW + FENCE_MS + 1).act is Act.HOLD
    refused = applied(READY, Act.FENCE, StepResult(ok=False, why="no"), NOW)
    assert (refused.unfenced, refused.rollback) == ("no", "")
    assert applied(READY, Act.FENCE, StepResult(ok=False, why="no", retry=True), NOW) == READY


def test_a_rollback_removes_the_fence_and_releases_the_flows() -> None:
    terms = replace(TERMS, rollback=True)
    record = replace(MOVED, fence="acl", fence_ms=NOW, denied=("t",), latches={"f": 1})
    held = replace(AWAY, latches={"f": HELD})
    assert step(record, held, terms).act is Act.WAIT, "the source has to answer"
    answers = replace(held, source_away="", denied={"t"})
    assert step(record, answers, terms).act is Act.UNFENCE
    assert step(record, replace(answers, denied=set()), terms).act is Act.RELEASE
    free = replace(AWAY, denied=set())
    assert step(record, free, terms).record.state is State.ROLLED_BACK
