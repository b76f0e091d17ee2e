"""An attempt that is suspended for longer than the target's brokers remember its producer (KIP-854)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.kills.round import OLD, KillRound
from tests.e2e.broker_side import Side
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_REMEMBERED_MS: Final = 16_000
"""More than twice what a batch may be retried for, so that young records go by sequence."""
_POINTS: Final = ("fencing", "fenced", "found", "sending", "acked", "commit-asked", "committed")


@pytest.fixture(scope="module", params=[1, 2])
def target(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of each transaction.version that soon forgets producers."""
    remembered = {
        "producer.id.expiration.ms": str(_REMEMBERED_MS),
        "producer.id.expiration.check.interval.ms": "200",
    }
    level = {"transaction.version": request.param}
    with Cluster(properties=remembered, features=level, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.mark.parametrize("old", [0, OLD], ids=["young", "some old"])
def test_attempt_suspended_longer_than_the_state_doubles_nothing_unreported(
    old: float, source_cluster: Cluster, target: Cluster
) -> None:
    """Another attempt completes meanwhile, and is forgotten, too. Old records go in transactions, young ones do not."""
    seed = random.SystemRandom().randrange(10**9)
    rng = random.Random(seed)
    source, copied = Side(source_cluster.bootstrap_servers), Side(target.bootstrap_servers)
    round_ = KillRound(source, copied, rng, "auto", forgets_soon=True, old=old)
    round_.open()
    try:
        round_.grow()
        round_.finish()
        for _ in range(2):
            round_.grow()
            with round_.attempt() as attempt:
                attempt.await_point(rng.choice(_POINTS), rng.choice((1, 1, 2, 3)))
                attempt.stop()
                _await_forgotten(round_)
                round_.grow()
                round_.finish()
                _await_forgotten(round_)
                attempt.proceed()
                round_.count(attempt.await_end())
            round_.verifier.check(round_.places, complete=True)
        assert round_.counts["way: transactions" if old else "way: sequences"], round_.counts
    except AssertionError as error:
        msg = f"seed {seed}: {error}"
        raise AssertionError(msg) from error
    finally:
        round_.close()


def _await_forgotten(round_: KillRound) -> None:
    """Wait until no leader knows a producer of the flow's any more, except in an open transaction."""
    tps = [TopicPartition(*place.target) for place in round_.places]
    with Admin({"bootstrap.servers": round_.target.address}) as admin:

        def forgotten() -> bool:
            known = [one for producers in admin.describe_producers(tps).values() for one in producers]
            return all(one.transaction_start is not None for one in known)

        within_s = 4 * _REMEMBERED_MS / 1_000
        eventually(forgotten, within_s=within_s, what="the end of the producers' state", every_s=0.5)
