"""What the campaign of cut-overs plans and finds, and a short form of it (``make switches``)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rich.console import Console

from tests.campaign.switches.campaign import play
from tests.campaign.switches.clients import Layout
from tests.campaign.switches.cutover import steps_s
from tests.campaign.switches.schedule import BEGUN, Kill, Plan, Victim, plan
from tests.campaign.switches.verification import (
    MemberNotes,
    ProducerNotes,
    of_acls,
    of_group,
    of_records,
    pauses_ms,
    quantile,
)

LOGS = {("t", 0): ["p-1", "q-1", "p-3"], ("t", 1): ["p-2"]}


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_clients_lose_nothing_when_an_operator_is_killed() -> None:
    seed = random.SystemRandom().randrange(10**9)
    plans = (Plan((Kill(Victim.OPERATOR, "fenced", 1.0),), early_stop=True, with_children=True),)
    (found,) = play(
        cutovers=1, topics=4, groups=3, producers=2, seed=seed, brokers=(1, 1), console=Console(), plans=plans
    )
    assert found.findings == [], f"seed {seed}"
    assert found.hits == [Victim.OPERATOR]
    assert found.statuses == [-9, 0]


def members(*lines: str) -> MemberNotes:
    notes = MemberNotes()
    for line in lines:
        notes.see(line)
    return notes


def test_records_that_are_there_once_and_in_order_are_right() -> None:
    assert of_records({"p-1", "p-2", "q-1"}, LOGS) == []


def test_lost_doubled_and_disordered_records_are_found() -> None:
    assert of_records({"p-1", "p-4"}, LOGS) == ["1 acknowledged and not on the target: p-4"]
    doubled = {**LOGS, ("t", 1): ["p-2", "q-1"]}
    assert of_records({"p-1"}, doubled) == ["1 on the target more than once: q-1"]
    assert of_records({"p-1"}, {("t", 0): ["p-3", "p-1"]}) == ["1 behind later ones of their producer: p-1"]


def test_group_that_reads_on_behind_its_commit_is_right() -> None:
    before = members("R a 1 p-1", "R a 1 q-1", "C a 2", "R a 3 p-3", "U a 4")
    after = members("R b 5 p-3", "R b 5 p-2", "C b 6")
    assert of_group("g", ["t"], [before, after], LOGS) == []


def test_group_that_skips_is_found() -> None:
    one = members("R a 1 p-1", "R a 1 q-1", "C a 2", "R b 3 p-3")
    assert of_group("g", ["t"], [one], LOGS) == ["1 skipped by group g: p-2"]
    assert of_group("g", ["other"], [one], LOGS) == []


@pytest.mark.parametrize("same_member", [True, False])
def test_group_that_reads_again_what_it_had_committed_is_found(same_member: bool) -> None:
    first = ["R a 1 p-1", "R a 1 q-1", "R a 1 p-3", "R a 1 p-2", "C a 2"]
    again = ["R b 3 q-1", "C b 4"]
    found = [members(*first, *again)] if same_member else [members(*first), members(*again)]
    assert of_group("g", ["t"], found, LOGS) == ["1 read again by group g after it had committed them: q-1"]


def test_acls_that_differ_are_found() -> None:
    assert of_acls([("a",)], [("a",)], "x") == []
    assert of_acls([("a",), ("b",)], [("b",), ("c",)], "x") == [
        "1 x: ACLs that are missing: a",
        "1 x: ACLs that are more than before: c",
    ]


def test_pause_is_from_the_last_record_there_to_the_first_one_here() -> None:
    notes = ProducerNotes()
    for line in ("A b 1 p-0", "A a 10 p-1", "A a 20 p-2", "F a 25 TOPIC_AUTHORIZATION_FAILED", "A b 50 p-3"):
        notes.see(line)
    assert pauses_ms({"p": notes}, "a", "b", 5) == {"p": 30}
    assert notes.refused == 1
    assert quantile([1, 2, 3, 4], 0.99) == 4
    assert quantile([1, 2, 3, 4], 0.5) == 2


def test_steps_are_those_of_the_last_attempt() -> None:
    states = ("planned", "ready", "rolled-back", "planned", "ready", "fenced", "drained", "proved", "moved", "OPEN")
    steps = [{"state": state, "at_ms": 1000 * n} for n, state in enumerate((*states, "reversed", "done"))]
    found = steps_s({"steps": steps, "fence_ms": 4_200, "switched_ms": 9_300})
    assert (found["check"], found["fence"], found["hook"]) == (1.0, 0.8, 0.3)
    assert found["OPEN"] == 1.0


def test_plans_follow_from_the_seed_and_have_every_victim_at_every_moment() -> None:
    plans = [plan(seed, number) for seed in range(50) for number in range(20)]
    assert plans == [plan(seed, number) for seed in range(50) for number in range(20)]
    kills = [kill for one in plans for kill in one.kills]
    assert Counter(kill.victim for kill in kills).keys() == {*Victim}
    assert {kill.moment for kill in kills if kill.victim is Victim.OPERATOR} >= {BEGUN, "fenced", "OPEN"}
    assert not any(kill.moment == "OPEN" for kill in kills if kill.victim is Victim.ROLLED_BACK)
    assert not plan(1, 1, calm=True).kills


def test_each_topic_is_written_and_read_by_both_programs() -> None:
    layout = Layout.of(30, 20, 12)
    assert {topic for _, topics in layout.producers.values() for topic in topics} == {*layout.topics}
    readers = Counter(topic for topics in layout.groups.values() for topic in topics)
    assert readers == dict.fromkeys(layout.topics, 2)
    assert {program for _, _, program in layout.members()} == {0, 1}
    assert len(Layout.of(300, 80, 24).groups) == 80
