"""An unclean election of a partition that the stream hardly copies meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.campaign.chaos import broker_faults
from tests.campaign.chaos.broker_faults import UncleanElection
from tests.campaign.chaos.schedule import FaultKind, ScheduledFault, Side


def test_election_without_records_to_lose_has_no_effect_and_resumes_the_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_faults, "WITHIN_S", 0)
    monkeypatch.setattr(broker_faults, "POLL_S", 0)
    monkeypatch.setattr(UncleanElection, "_log_end", lambda _: 7)
    calls = list[tuple[str, int]]()
    cluster = SimpleNamespace(
        pause=lambda broker: calls.append(("pause", broker)), resume=lambda broker: calls.append(("resume", broker))
    )
    replicas = SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1])
    side = SimpleNamespace(cluster=cluster, affected=set(), metadata=lambda topics: {(topics[0], 0): replicas})
    context: Any = SimpleNamespace(
        clusters=SimpleNamespace(target=side), topics=SimpleNamespace(lossy="lossy"), log=list[str]()
    )
    election = UncleanElection(context, ScheduledFault(FaultKind.UNCLEAN_ELECTION, Side.TARGET, 0, 0, 1, 1))
    election.begin()
    election.end()
    assert (election.count, side.affected, calls) == (0, set(), [("pause", 2), ("resume", 2)])
    assert "no election: records that the leader alone acknowledges" in context.log[-1]
