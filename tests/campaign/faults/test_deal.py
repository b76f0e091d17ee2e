from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.campaign.faults.deal import (
    BROKERS,
    HAND,
    HANDS,
    OF_BROKERS,
    OF_CONNECTIONS,
    SMALL_DISK,
    WINDOW_S,
    Kind,
    On,
    deal,
    kinds_of,
)
from tests.campaign.faults.harms import faults_of
from tests.faults.proxy import Action

SEEDS = range(200 * HANDS)


def test_a_pack_has_every_kind_once() -> None:
    for first in SEEDS[::HANDS]:
        dealt = Counter(kind for seed in range(first, first + HANDS) for kind in kinds_of(seed))
        assert dealt == Counter(Kind)
    assert len({kinds_of(seed) for seed in SEEDS}) > len(SEEDS) / 2


def test_a_seed_repeats_its_round() -> None:
    assert [deal(seed) for seed in SEEDS] == [deal(seed) for seed in SEEDS]


def test_no_broker_is_harmed_twice_in_a_round() -> None:
    for seed in SEEDS:
        brokers = [(harm.on, harm.broker) for harm in deal(seed).harms if harm.kind in OF_BROKERS]
        assert len(set(brokers)) == len(brokers)
        assert all(1 <= broker <= BROKERS for _, broker in brokers)


def test_each_harm_befalls_whom_it_can() -> None:
    every = [(one, harm) for one in map(deal, SEEDS) for harm in one.harms]
    for one, harm in every:
        assert one.tls == any(each.kind is Kind.EXPIRED for each in one.harms)
        if harm.kind is Kind.FULL_DISK:
            assert (harm.on, harm.broker) == (On.TARGET, SMALL_DISK)
        if harm.kind is Kind.EXPIRED or (harm.on is On.TARGET and harm.kind in OF_CONNECTIONS):
            assert harm.on is On.TARGET
            assert one.tls == (harm.kind is Kind.EXPIRED), "by TLS the target is not behind the proxy"
        assert 0 <= harm.at_s <= WINDOW_S + 1
        assert (harm.for_s > 0) == (
            harm.kind in {*OF_CONNECTIONS, *OF_BROKERS, Kind.CLOCK} and harm.kind is not Kind.RESTART
        )
    both = {(harm.kind, harm.on) for _, harm in every}
    for kind in (*OF_CONNECTIONS, Kind.KILL, Kind.STOP, Kind.RESTART, Kind.LEADERS):
        assert {(kind, On.SOURCE), (kind, On.TARGET)} <= both


def test_some_come_at_once() -> None:
    rounds = [[harm.at_s for harm in deal(seed).harms] for seed in SEEDS]
    at_once = sum(any(b - a <= 1 for a, b in itertools.pairwise(times)) for times in rounds)
    assert len(rounds) / 2 < at_once < len(rounds)


def test_who_names_kinds_gets_them_but_for_those_left_out() -> None:
    chosen = [Kind.KILL, Kind.FULL_DISK, Kind.CLOCK]
    assert {harm.kind for harm in deal(7, chosen).harms} == set(chosen)
    assert {harm.kind for harm in deal(7, chosen, {Kind.FULL_DISK}).harms} == {Kind.KILL, Kind.CLOCK}
    assert len(deal(7).harms) == HAND


@pytest.mark.parametrize("kind", sorted(OF_CONNECTIONS))
def test_faults_are_of_their_kind_and_end(kind: Kind) -> None:
    harms = [harm for seed in range(50) for harm in deal(seed, [kind]).harms]
    faults = [fault for harm in harms for fault in faults_of(harm)]
    assert len({fault.action for fault in faults}) == 1
    assert len({(fault.api, fault.on, fault.broker) for fault in faults}) > 10
    assert len({fault.after for fault in faults}) > 10
    assert all(fault.times is not None for fault in faults)
    assert all((fault.delay_ms > 0) == (fault.action is Action.DELAY) for fault in faults)
    assert [faults_of(harm) for harm in harms] == [faults_of(harm) for harm in harms]
