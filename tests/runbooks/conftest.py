"""Two clusters that the runbooks name, with an authorizer: alice may write, bob may read, on both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mirror.client import Admin, NewTopic
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import create, guarded
from tests.switch.guarded_pair import PARTITIONS, TOPICS, grants
from tests.topic_creation import create_topics


@dataclass(frozen=True)
class Cities:
    """The clusters; the topics are in paris."""

    paris: Cluster
    berlin: Cluster

    @property
    def names(self) -> dict[str, str]:
        """What the page says -> what is meant here."""
        return {
            "paris-1:9092": self.paris.bootstrap_servers,
            "berlin-1:9092": self.berlin.bootstrap_servers,
            "quiet-seconds = 30": "quiet-seconds = 3",
        }


@pytest.fixture
def cities() -> Iterator[Cities]:
    with guarded() as paris, guarded() as berlin:
        for cluster in (paris, berlin):
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                if cluster is paris:
                    create_topics(admin, [NewTopic(name, PARTITIONS) for name in TOPICS])
                create(admin, [*grants(TOPICS)])
        yield Cities(paris, berlin)
