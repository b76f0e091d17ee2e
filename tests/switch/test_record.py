"""The record of a switch as it is stored, and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import FlowError, KafkaTimeout
from mirror.switch.command import status_of_error
from mirror.switch.facts import Facts, FlowLatch
from mirror.switch.machine import CUTOVER, Act
from mirror.switch.operator import Operator
from mirror.switch.record import Command, State, SwitchRecord, parse, to_bytes
from mirror.switch.record_store import RecordStore, SwitchTaken
from tests.switch.test_machine import FENCED, MOVED, OPEN
from tests.switch.world import BACK, FLOW, TERMS, Cluster, Killed, Site, Topic, World, operator


def test_a_record_is_read_as_it_was_stored() -> None:
    record = replace(OPEN, operator="ann", target_ends={"t": (1, 2)}, proofs={"f": "x"}).entered(State.REVERSED, 5, "y")
    assert parse(to_bytes(record)) == record
    assert parse(b'{"v":1,"state":"of a later version"}') is None
    assert parse(b"{}") is None


def test_an_operator_stores_nothing_once_a_later_one_has_claimed() -> None:
    target, source = Cluster(), Cluster()
    first, second = (RecordStore(Topic(target), Topic(source)) for _ in range(2))
    ours = replace(MOVED, generation=1, operator="a")
    first.store(ours)
    second.store(replace(ours, generation=2, operator="b"))
    with pytest.raises(SwitchTaken, match="another operator goes on with the switch: b"):
        first.store(ours)  # it fences the other one, reads, and ends
    second_again = replace(ours, generation=2, operator="b")
    second.store(second_again)  # which was fenced, and finds its own record
    assert target.record == second_again


def test_two_claims_of_one_generation_are_not_both_stored() -> None:
    target, source = Cluster(), Cluster()
    record = replace(MOVED, generation=3)
    RecordStore(Topic(target), Topic(source)).store(replace(record, operator="a"))
    with pytest.raises(SwitchTaken):
        RecordStore(Topic(target), Topic(source)).store(replace(record, operator="b"))


def test_a_claim_that_comes_too_late_does_not_end_the_one_before() -> None:
    world = World(set())
    stale = operator(world, 1)[0].record
    first, _ = operator(world, 2)
    site = Site(world)
    site.read_record = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(SwitchTaken):
        Operator(site, TERMS, "operator 3", lambda: world.now_ms).claim((FLOW,))
    world.now_ms += 25_000
    assert first.turn().record.state is State.READY


def test_a_claim_overwrites_nothing_that_was_stored_behind_its_reading() -> None:
    world = World(set())
    first, _ = operator(world, 1)
    first.turn()
    site = Site(world)
    read = site.read_record

    def then_the_first_fences() -> SwitchRecord | None:
        found = read()
        assert first.turn().act is Act.FENCE
        return found

    site.read_record = then_the_first_fences  # type: ignore[method-assign]
    with pytest.raises(SwitchTaken, match="operator 1"):
        Operator(site, TERMS, "operator 2", lambda: world.now_ms).claim((FLOW,))
    assert (world.source.denied, {*first.record.denied}) == ({"t", "u"}, {"t", "u"})
    assert first.turn().record.denied == first.record.denied, "it goes on, although it was fenced"


def test_the_source_is_needed_until_the_switch_is_open() -> None:
    target, source = Cluster(), Cluster(away=True)
    store = RecordStore(Topic(target), Topic(source))
    with pytest.raises(KafkaTimeout):
        store.store(MOVED)
    store.store(OPEN)
    assert isinstance(store.away, KafkaTimeout)
    source.away = False
    store.store(OPEN)
    assert source.record == OPEN
    assert vars(store)["away"] is None


def test_a_switch_that_has_intended_nothing_yet_is_begun_by_another_command() -> None:
    world = World(set())
    first, _ = operator(world, 1)
    world.source.record = world.target.record = first.turn().record
    assert world.target.record.state is State.READY
    site = Site(world)
    other = Operator(site, TERMS, "operator 2", lambda: world.now_ms, replace(CUTOVER, command=Command.FAILOVER))
    record = other.claim((FLOW,))
    assert (record.command, record.state, record.attempt) == (Command.FAILOVER, State.PLANNED, 2)
    with pytest.raises(SwitchTaken):
        first.turn()


def test_an_operator_waits_for_one_that_has_not_said_that_it_ended() -> None:
    world = World(set())
    first, _ = operator(world, 1)
    second, _ = operator(world, 2)
    assert "last call of an earlier operator" in second.turn().why
    world.now_ms += 20_001
    assert second.turn().record.state is State.READY
    second.leave()
    third, _ = operator(world, 3)
    assert third.turn().record.fence_ms > 0
    with pytest.raises(SwitchTaken):
        first.turn()


def test_an_operator_that_leaves_while_it_waits_has_the_next_one_wait_for_the_same_one() -> None:
    world = World(set())
    first, stalled = operator(world, 1)
    first.turn()
    stalled.kill = "stall"
    with pytest.raises(Killed):
        first.turn()
    second, _ = operator(world, 2, replace(TERMS, until=State.READY))
    assert second.turn().act is Act.END
    second.leave()
    third, _ = operator(world, 3, replace(TERMS, rollback=True))
    assert "last call of an earlier operator" in third.turn().why
    [(until_ms, create)] = stalled.late
    create()
    world.now_ms = max(until_ms, world.now_ms + TERMS.takeover_ms + 1)
    world.propagate()
    while third.turn().record.state is not State.ROLLED_BACK:
        world.propagate()
    assert world.source.denied == set()


def test_an_operator_waits_for_a_hook_of_an_earlier_one() -> None:
    world = World(set())
    operator(world, 1)
    second, _ = operator(world, 2, replace(TERMS, hook_ms=60_000))
    world.now_ms += 60_000
    assert "(65 s at most)" in second.turn().why
    world.now_ms += 5_001
    assert second.turn().record.state is State.READY


def test_a_switch_goes_on_with_the_flows_and_clusters_with_which_it_began() -> None:
    world = World(set())
    made, _ = operator(world, 1)
    with pytest.raises(FlowError, match=f"has begun with the flows {FLOW}"):
        made.claim(("other",))
    world.target.record = replace(made.record, clusters=("a", "b"))
    with pytest.raises(FlowError, match="has begun with cluster b, and c answers"):
        made.claim((FLOW,), ("", "c"))


def test_an_operator_that_was_replaced_creates_no_acl_behind_a_rollback() -> None:
    world = World(set())
    first, _ = operator(world, 1)
    assert [first.turn().act for _ in range(2)][-1].value == "fence"
    second, _ = operator(world, 2, replace(TERMS, rollback=True))
    world.now_ms += 25_000
    world.propagate()
    while second.turn().record.state is not State.ROLLED_BACK:
        world.propagate()
    with pytest.raises(SwitchTaken):
        first.turn()
    assert world.source.denied == set()


def test_a_switch_that_another_command_began_is_refused() -> None:
    world = World(set())
    made, _ = operator(world, 1)
    assert [made.turn().act for _ in range(2)][-1] is Act.FENCE
    made.leave()
    failover = replace(CUTOVER, command=Command.FAILOVER)
    with pytest.raises(FlowError, match="switch s was begun by mirror cutover: mirror failover needs another table"):
        Operator(Site(world), TERMS, "b", lambda: world.now_ms, failover).claim((FLOW,))
    follows = replace(failover, follows=(Command.CUTOVER,))
    assert Operator(Site(world), TERMS, "b", lambda: world.now_ms, follows).claim((FLOW,)).command is Command.CUTOVER
    world.target.record = world.source.record = replace(made.record, generation=9, state=State.ROLLED_BACK)
    assert Operator(Site(world), TERMS, "c", lambda: world.now_ms, failover).claim((FLOW,)).command is Command.FAILOVER


def test_a_failover_is_stored_without_the_source_but_never_without_the_target() -> None:
    record = replace(MOVED, command=Command.FAILOVER)
    target, source = Cluster(), Cluster(away=True)
    store = RecordStore(Topic(target), Topic(source))
    store.store(record)
    assert (target.record, isinstance(store.away, KafkaTimeout)) == (record, True)
    source.away, target.away = False, True
    with pytest.raises(KafkaTimeout):
        store.store(replace(record, rollback="x"))
    assert source.record is None


def test_an_operator_that_was_replaced_holds_no_flow_beside_its_comparison() -> None:
    world = World(set())
    first, site = operator(world, 1)
    while first.turn().record.state is not State.DRAINED:
        world.propagate()
        world.now_ms += 2_000
    world.latches[FLOW] = FlowLatch(is_held=False, generation=0, by="")
    world.target.record = world.source.record = replace(first.record, latches={FLOW: 1, BACK: 1})
    again, site = operator(world, 1)
    world.now_ms += 25_000
    read = site.facts

    def late(record: SwitchRecord) -> Facts:
        found = read(record)
        world.now_ms += 6_000
        operator(world, 2)
        return found

    site.facts = late  # type: ignore[method-assign]
    with pytest.raises(SwitchTaken):
        again.turn()
    assert not world.latches[FLOW].is_held


def test_what_is_open_is_not_rolled_back_by_a_command() -> None:
    world = World(set())
    world.target.record = replace(OPEN, flows=(FLOW,), left=True)
    with pytest.raises(FlowError, match="switch s is OPEN, so it is not rolled back"):
        operator(world, 1, replace(TERMS, rollback=True))
    assert world.target.record.generation == 0


@pytest.mark.parametrize("away", ["source", "target"])
def test_a_switch_that_cannot_be_claimed_still_says_what_it_has_come_to(away: str) -> None:
    world = World(set())
    fenced(world)
    getattr(world, away).away = True
    second = Operator(Site(world), TERMS, "b", lambda: world.now_ms)
    with pytest.raises(KafkaTimeout):
        second.claim((FLOW,))
    assert status_of_error(second.record, 1) == 5
    second.leave()


def fenced(world: World) -> Operator:
    """An operator of a switch that is fenced."""
    made, _ = operator(world, 1)
    while not made.turn().record.state.reaches(State.FENCED):
        world.propagate()
    return made


def test_a_rollback_removes_the_fence_while_the_target_is_away() -> None:
    world = World(set())
    first = fenced(world)
    world.target.away = True
    second, _ = operator(world, 2, replace(TERMS, rollback=True))
    world.now_ms += 25_000
    assert [second.turn().act for _ in range(2)] == [Act.UNFENCE, Act.STORE]
    assert world.source.denied == set()
    world.target.away = False
    first.leave()
    with pytest.raises(SwitchTaken, match="operator 2"):
        first.turn()
    found = RecordStore(Topic(world.target), Topic(world.source)).read()
    assert found is not None
    assert found.state is State.ROLLED_BACK


def test_a_rollback_on_the_source_alone_counts_behind_claims_on_the_target_alone() -> None:
    world = World(set())
    fenced(world)
    world.target.away = True
    rolled, _ = operator(world, 2, replace(TERMS, rollback=True))
    world.target.away, world.source.away = False, True
    for number in (3, 4):
        with pytest.raises(KafkaTimeout):
            operator(world, number)
    late = Site(world)
    found = late.read_record()
    assert found is not None
    world.source.away = False
    with pytest.raises(SwitchTaken, match=rolled.record.operator):  # it had read the target alone
        late.store(replace(found, generation=found.generation + 1, operator="operator 5"))
    after, _ = operator(world, 6)
    assert (after.record.rollback, after.record.generation) == ("--rollback", 5)
    world.now_ms += 25_000
    with pytest.raises(SwitchTaken):
        rolled.turn()


def test_a_deadline_removes_the_fence_while_the_target_is_away() -> None:
    world = World(set())
    made = fenced(world)
    world.target.away = True
    assert made.turn().why == "the target does not answer: away"
    world.now_ms += TERMS.deadline_ms + 1
    assert [made.turn().act for _ in range(2)] == [Act.UNFENCE, Act.STORE]
    assert made.record.state is State.ROLLED_BACK
    assert world.source.denied == set()


def test_a_rollback_without_the_target_is_refused_if_the_switch_may_be_open() -> None:
    target, source = Cluster(away=True), Cluster(record=replace(MOVED, opening=True, generation=1))
    store = RecordStore(Topic(target), Topic(source))
    back = replace(MOVED, rollback="--rollback", generation=2, operator="b")
    with pytest.raises(FlowError, match="the switch may be open there"):
        store.store(back)
    assert source.record == replace(MOVED, opening=True, generation=1)
    source.record = replace(MOVED, generation=1)
    store.store(back)
    assert source.record == back
    first = RecordStore(Topic(Cluster(record=replace(MOVED, generation=1))), Topic(source))
    with pytest.raises(SwitchTaken):
        first.store(replace(MOVED, opening=True, generation=1))  # so it does not open


def test_a_cluster_that_was_away_is_known_once_it_answers() -> None:
    world = World(set())
    made = Operator(Site(world), TERMS, "a", lambda: world.now_ms)
    made.claim((FLOW,), ("", "berlin"))
    again = Operator(Site(world), TERMS, "b", lambda: world.now_ms)
    assert again.claim((FLOW,), ("paris", "berlin")).clusters == ("paris", "berlin")
    with pytest.raises(FlowError, match="has begun with cluster paris, and rome answers"):
        Operator(Site(world), TERMS, "c", lambda: world.now_ms).claim((FLOW,), ("rome", ""))


def test_a_hook_that_has_fenced_is_not_forgotten() -> None:
    world = World(set())
    world.target.record = replace(FENCED, flows=(FLOW,), fence="hook", hook_fenced=True)
    with pytest.raises(FlowError, match='has fenced with fence = "hook": restore it, and hook-fence'):
        operator(world, 1, replace(TERMS, rollback=True))


def test_states_are_in_order() -> None:
    assert State.MOVED.reaches(State.DRAINED)
    assert not State.DRAINED.reaches(State.MOVED)
    assert not State.ROLLED_BACK.reaches(State.PLANNED)
    assert TERMS.by == "switch s"
    assert not SwitchRecord(state=State.READY).fences
