from __future__ import annotations

import itertools
from collections import Counter

import pytest

from mirror.wire.api import Api
from tests.campaign.chaos.connection_faults import proxy_faults
from tests.campaign.chaos.faults import INJECTIONS
from tests.campaign.chaos.schedule import (
    BROKERS,
    OF_CONNECTIONS,
    OF_ONE_BROKER,
    PER_ROUND,
    ROUNDS_PER_PACK,
    SMALL_DISK,
    WINDOW_S,
    FaultKind,
    Side,
    kinds_of,
    schedule,
)
from tests.faults.proxy import Action

SEEDS = range(200 * ROUNDS_PER_PACK)
WITHOUT_DURATION = {
    FaultKind.BROKER_RESTARTED,
    FaultKind.LEADERS_MOVED,
    FaultKind.EXECUTOR_KILLED,
    FaultKind.WORKER_KILLED,
    FaultKind.DRIVER_KILLED,
    FaultKind.PARTITIONS_ADDED,
    FaultKind.TOPICS_RECREATED,
}


def test_pack_has_every_kind_once() -> None:
    for first in SEEDS[::ROUNDS_PER_PACK]:
        pack = Counter(kind for seed in range(first, first + ROUNDS_PER_PACK) for kind in kinds_of(seed))
        assert pack == Counter(FaultKind)
    assert len({kinds_of(seed) for seed in SEEDS}) > len(SEEDS) / 2


def test_seed_repeats_its_round() -> None:
    assert [schedule(seed) for seed in SEEDS] == [schedule(seed) for seed in SEEDS]


def test_another_attempt_has_the_same_kinds_elsewhere() -> None:
    first, second = schedule(7), schedule(7, attempt=1)
    assert {fault.kind for fault in first.faults} == {fault.kind for fault in second.faults}
    assert {fault.seed for fault in first.faults}.isdisjoint(fault.seed for fault in second.faults)


def test_broker_has_one_fault_in_a_round() -> None:
    for seed in SEEDS:
        brokers = [(fault.side, fault.broker) for fault in schedule(seed).faults if fault.kind in OF_ONE_BROKER]
        assert len(set(brokers)) == len(brokers)
        assert all(1 <= broker <= BROKERS for _, broker in brokers)


def test_fault_takes_place_where_it_can() -> None:
    every = [(planned, fault) for planned in map(schedule, SEEDS) for fault in planned.faults]
    for planned, fault in every:
        assert planned.tls == planned.has(FaultKind.CERTIFICATE_EXPIRED)
        if fault.kind is FaultKind.TARGET_DISK_FULL:
            assert (fault.side, fault.broker) == (Side.TARGET, SMALL_DISK)
        if fault.kind is FaultKind.SOURCE_DISK_FULL:
            assert (fault.side, fault.broker) == (Side.SOURCE, SMALL_DISK)
        if fault.side is Side.TARGET and fault.kind in OF_CONNECTIONS:
            assert not planned.tls, "by TLS the target is not behind the proxy"
        if fault.kind is FaultKind.CERTIFICATE_EXPIRED:
            assert fault.side is Side.TARGET
        assert 0 <= fault.at_s <= WINDOW_S + 1
        assert (fault.for_s > 0) == (fault.kind not in WITHOUT_DURATION)
    both = {(fault.kind, fault.side) for _, fault in every}
    anywhere = OF_ONE_BROKER - {
        FaultKind.SOURCE_DISK_FULL,
        FaultKind.TARGET_DISK_FULL,
        FaultKind.CERTIFICATE_EXPIRED,
    }
    for kind in (*OF_CONNECTIONS, *anywhere, FaultKind.LEADERS_MOVED):
        assert {(kind, Side.SOURCE), (kind, Side.TARGET)} <= both


def test_unclean_election_has_all_brokers_of_the_target() -> None:
    rounds = [planned for planned in map(schedule, SEEDS) if planned.has(FaultKind.UNCLEAN_ELECTION)]
    assert len(rounds) == len(SEEDS) / ROUNDS_PER_PACK
    for planned in rounds:
        assert not any(fault.side is Side.TARGET and fault.kind in OF_ONE_BROKER for fault in planned.faults)
    with pytest.raises(AssertionError, match="no round can have all of these"):
        schedule(1, [FaultKind.UNCLEAN_ELECTION, FaultKind.TARGET_DISK_FULL])


def test_some_faults_are_simultaneous() -> None:
    rounds = [[fault.at_s for fault in schedule(seed).faults] for seed in SEEDS]
    simultaneous = sum(any(b - a <= 1 for a, b in itertools.pairwise(times)) for times in rounds)
    assert len(rounds) / 2 < simultaneous < len(rounds)


def test_given_kinds_are_scheduled_without_those_unavailable() -> None:
    chosen = [FaultKind.BROKER_KILLED, FaultKind.TARGET_DISK_FULL, FaultKind.CLOCK_STEPPED]
    assert {fault.kind for fault in schedule(7, chosen).faults} == set(chosen)
    without = schedule(7, chosen, {FaultKind.TARGET_DISK_FULL})
    assert {fault.kind for fault in without.faults} == {FaultKind.BROKER_KILLED, FaultKind.CLOCK_STEPPED}
    assert len(schedule(7).faults) == PER_ROUND


def test_every_kind_has_an_injection() -> None:
    assert set(INJECTIONS) == set(FaultKind)
    assert all(injection.unit for injection in INJECTIONS.values())


@pytest.mark.parametrize("kind", sorted(OF_CONNECTIONS))
def test_proxy_faults_are_of_their_kind_and_bounded(kind: FaultKind) -> None:
    scheduled = [fault for seed in range(50) for fault in schedule(seed, [kind]).faults]
    faults = [found for fault in scheduled for found in proxy_faults(fault)]
    assert len({fault.action for fault in faults}) == 1
    assert len({(fault.api, fault.on, fault.broker) for fault in faults}) > 10
    assert len({fault.after for fault in faults}) > 10
    assert all(fault.times is not None for fault in faults)
    first = {(fault.side, found.api, found.broker) for fault in scheduled for found in proxy_faults(fault)[:1]}
    assert first == {
        (Side.SOURCE, Api.FETCH, None),
        (Side.TARGET, Api.PRODUCE, None),
        (Side.TARGET, Api.END_TXN, None),
        (Side.TARGET, Api.TXN_OFFSET_COMMIT, None),
    }, "the stream makes these requests all the time"
    assert all((fault.delay_ms > 0) == (fault.action is Action.DELAY) for fault in faults)
    assert [proxy_faults(fault) for fault in scheduled] == [proxy_faults(fault) for fault in scheduled]
