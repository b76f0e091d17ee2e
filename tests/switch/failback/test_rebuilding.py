"""Which step of a rebuild is next, and what a plan of it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from mirror.switch.facts import GRACE_MS, Ends
from mirror.switch.failback.deciding import OldFacts, Wish, rebuild_plan
from mirror.switch.failback.rebuilding import RebuildFacts, wanted
from mirror.switch.machine import Act, Next
from mirror.switch.record import FailbackRecord, Rebuild, parse, to_bytes
from tests.switch.failback.test_deciding import DENIED, FOUND, OPEN, TERMS, after, decide

PLAN: Final = Rebuild(partitions=2, configs={"retention.ms": "7"})
BACK: Final = replace(TERMS, back=("back",))
BROKEN: Final = replace(FOUND, broken=("t",), exported=("t",), topic_ids={"t": "old", "u": "sound"})
LIVE: Final = replace(
    DENIED, live_ids={"t": "old", "u": "sound"}, rebuild=RebuildFacts(made={"t": PLAN}), ends={**(DENIED.ends or {})}
)
ALL: Final = Wish(rebuild_all=True)
NOW: Final = 100_000


def step(back: FailbackRecord, facts: OldFacts = LIVE, wish: Wish = ALL) -> tuple[Next, FailbackRecord]:
    return decide(back, facts, wish, terms=BACK)


def gone(facts: OldFacts = LIVE, live_id: str = "", high: int = 0) -> OldFacts:
    ids = {"u": "sound"} | ({"t": live_id} if live_id else {})
    ends = {"u": (Ends(4, 4),)} | ({"t": (Ends(high, high), Ends(0, 0))} if live_id else {})
    return replace(facts, live_ids=ids, ends=ends)


def test_a_topic_is_deleted_only_by_the_id_behind_whose_tail_it_ends() -> None:
    found, _ = step(BROKEN)
    assert found.act is Act.HOLD
    held = after(BROKEN, Act.HOLD)
    found, planned = step(held)
    assert (found.act, planned.rebuilds) == (Act.STORE, {"t": replace(PLAN, found_id="old", doomed_id="old")})
    assert step(planned)[0].act is Act.DELETE
    found, _ = step(planned, gone(live_id="other", high=3))
    assert (found.act, "created by others, with records" in found.why) == (Act.END, True)


def test_each_step_follows_from_what_the_old_cluster_shows() -> None:
    _, planned = step(after(BROKEN, Act.HOLD))
    assert step(planned, gone())[0].act is Act.CREATE
    created = after(planned, Act.CREATE, t="new")
    assert created.rebuilds["t"].created_id == "new"
    there = gone(live_id="new")
    assert step(created, there)[0].act is Act.WAIT, "brokers delete the positions in a topic behind its deletion"
    early = replace(created.rebuilds["t"], created_ms=NOW - GRACE_MS - 1)
    ready = replace(created, rebuilds={"t": early})
    assert step(ready, there)[0].act is Act.BEGIN
    begun = replace(there, rebuild=RebuildFacts(made={"t": PLAN}, begun={"t"}))
    assert step(ready, begun)[0].act is Act.REVERSE
    done = after(ready, Act.REVERSE)
    assert (done.broken, done.back_held_ms, {*done.starts}) == ((), 0, {"u"})
    assert done.rebuilds["t"].done_ms == NOW
    assert step(done, begun)[0].act is Act.END
    assert step(done, begun, Wish(export=True))[0].act is Act.SKIP_TAIL
    assert parse(to_bytes(replace(OPEN, failback=done))) == replace(OPEN, failback=done)


def test_an_empty_topic_of_others_is_deleted_too() -> None:
    _, planned = step(after(BROKEN, Act.HOLD))
    found, again = step(planned, gone(live_id="other"))
    assert (found.act, again.rebuilds["t"].doomed_id, again.rebuilds["t"].found_id) == (Act.STORE, "other", "old")
    assert step(again, gone(live_id="other"))[0].act is Act.DELETE


def test_a_flow_of_the_way_back_that_was_released_since_is_held_again() -> None:
    _, planned = step(after(BROKEN, Act.HOLD))
    free = replace(LIVE, rebuild=RebuildFacts(made={"t": PLAN}, back_is_free=True))
    assert step(planned, free)[0].act is Act.HOLD


def test_an_empty_topic_of_others_that_has_records_since_stays() -> None:
    _, planned = step(after(BROKEN, Act.HOLD))
    _, again = step(planned, gone(live_id="other"))
    found, _ = step(again, gone(live_id="other", high=3))
    assert (found.act, "created by others, with records" in found.why) == (Act.END, True)


def test_a_topic_that_comes_back_behind_the_fence_is_exported_first() -> None:
    missing = after(replace(BROKEN, ends={"u": (4,)}, starts={"u": (4,)}, topic_ids={"u": "sound"}), Act.HOLD)
    found, back = step(missing, gone(live_id="other", high=3))
    assert (found.act, "t-0 (end 3, was missing)" in found.why, back.located_ms) == (Act.END, True, 0)
    assert step(missing, gone(live_id="other"))[0].act is Act.STORE, "an empty one is deleted"
    nothing = replace(missing, ends={}, starts={}, topic_ids={})
    assert step(nothing, replace(gone(), live_ids={}, ends={}))[0].act is Act.STORE
    found, back = step(nothing, gone(live_id="other", high=3))
    assert (found.act, {*back.ends}, back.located_ms) == (Act.STORE, {"t", "u"}, 0)


def test_what_the_flow_back_copies_into_a_created_topic_is_no_change() -> None:
    """Also behind a fence that has begun again since."""
    done = replace(PLAN, found_id="old", doomed_id="old", created_id="new", done_ms=1)
    refenced = replace(BROKEN, broken=(), exported=(), starts={"u": (4,)}, topic_ids={"t": "new", "u": "sound"})
    found, _ = step(replace(refenced, rebuilds={"t": done}), gone(live_id="new", high=12), Wish(export=True))
    assert found.act is Act.RELEASE


@pytest.mark.parametrize(
    ("back", "facts", "wish", "why"),
    [
        (replace(BROKEN, exported=()), LIVE, ALL, "topic t with a tail that is not exported"),
        (BROKEN, LIVE, Wish(rebuild=("t", "u")), "topic u: not among those that cannot be continued"),
        (BROKEN, replace(LIVE, rebuild=RebuildFacts(obstacles={"t": "others copy it"})), ALL, "others copy it"),
        (BROKEN, gone(), ALL, "changed behind the fence, since its end was found: partition"),
        (BROKEN, gone(live_id="other", high=9), ALL, "changed behind the fence"),
    ],
)
def test_what_is_refused_deletes_nothing(back: FailbackRecord, facts: OldFacts, wish: Wish, why: str) -> None:
    found, _ = step(back, facts, wish)
    assert (found.act, why in found.why) == (Act.END, True)
    refusal, _ = rebuild_plan(replace(OPEN, failback=back), facts, wish, BACK)
    assert why in refusal


def test_a_switch_without_a_way_back_rebuilds_nothing() -> None:
    found, _ = decide(BROKEN, LIVE, ALL)
    assert (found.act, "has no flow in back" in found.why) == (Act.END, True)


def test_what_a_command_began_the_next_one_ends_whatever_it_names() -> None:
    both = replace(BROKEN, broken=("t", "u"), rebuilds={"t": PLAN})
    assert wanted(both, ["u"], every=False) == ["t", "u"]
    assert wanted(replace(both, broken=("u",), rebuilds={"t": replace(PLAN, done_ms=1)}), (), every=True) == ["u"]


def test_a_plan_says_what_is_deleted_and_what_is_created() -> None:
    refusal, lines = rebuild_plan(replace(OPEN, failback=BROKEN), LIVE, ALL, BACK)
    assert refusal == ""
    assert lines[:4] == [
        "topic t: deletes partition 0, up to offset 9, of which the tail from 7 on is exported",
        "topic t: deletes partition 1, up to offset 5",
        "topic t: creates it with 2 partitions, with retention.ms = 7",
        "topic t: has the flow back copy all that the other cluster has of it",
    ]
    refusal, lines = rebuild_plan(replace(OPEN, failback=FailbackRecord()), LIVE, ALL, BACK)
    assert (lines, "--export first" in refusal) == ([], True)
