"""Exactly once while attempts are killed: a few rounds of the campaign (tests/campaign/kills/campaign.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.kills.attacks import QUICK
from tests.campaign.kills.campaign import PROPERTIES, play
from tests.e2e.broker_side import Side

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def level_1() -> Iterator[Cluster]:
    """A cluster with transactions of version 1."""
    with Cluster(properties=PROPERTIES, features={"transaction.version": 1}, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def level_2() -> Iterator[Cluster]:
    with Cluster(properties=PROPERTIES, features={"transaction.version": 2}, heap=jvm.BROKER) as cluster:
        yield cluster


def test_killed_attempts_leave_every_record_on_the_target_once(
    source_cluster: Cluster, level_2: Cluster, subtests: pytest.Subtests
) -> None:
    """One kind of attack, another one in each run, on ranges of both ways, at transaction version 2."""
    _attack(source_cluster, [(level_2, "mixed", [random.choice(QUICK)])], subtests)


@pytest.mark.cluster
def test_killed_attempts_of_every_kind_leave_every_record_on_the_target_once(
    source_cluster: Cluster, level_1: Cluster, level_2: Cluster, subtests: pytest.Subtests
) -> None:
    """Every kind of attack runs at transaction version 2, one of them on mixed ranges; one more at version 1."""
    mixed, *others = random.sample(QUICK, len(QUICK))
    runs = [
        (level_2, "sequences", others),
        (level_2, "mixed", [mixed]),
        (level_1, random.choice(("sequences", "transactions")), [random.choice(QUICK)]),
    ]
    _attack(source_cluster, runs, subtests)


def _attack(source_cluster: Cluster, runs: list[tuple[Cluster, str, list[str]]], subtests: pytest.Subtests) -> None:
    source = Side(source_cluster.bootstrap_servers)
    for target, by, attacks in runs:
        for attack in attacks:
            seed = random.SystemRandom().randrange(10**9)  # a new one in each run; a failure reports it
            with subtests.test(attack=attack, by=by, seed=seed):
                counts = play(source, target, seed, (attack,), attacks_each=1, by=by)
                assert counts[attack] == 1
                assert counts["result: complete"] >= 3, counts
