"""The producer ids that this process has registered, so that its next tasks do not register them again."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, NamedTuple


class RegistryVersion(NamedTuple):
    """What changes if a registry may have lost registrations: it was created again, or another replica leads it."""

    topic_id: str
    leader_epoch: int


# Invariant: A process registers the producer ids that it uses again after each election of the registry's leader.
# Test: tests/relay/origin/
#   test_registry_on_fakes.py::test_nothing_comes_back_when_an_election_loses_what_the_registry_says_of_it
class RegisteredIds:
    """The registered producer ids by cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of: Final[dict[Hashable, tuple[RegistryVersion, set[int]]]] = {}

    def of(self, cluster: Hashable, version: RegistryVersion) -> set[int]:
        """Return the ids that were registered in this ``version`` of the registry of ``cluster``.

        The caller adds to the set what it registers, after it is acknowledged.
        """
        with self._lock:
            known = self._of.get(cluster)
            if known is None or known[0] != version:
                self._of[cluster] = known = (version, set())
            return known[1]


registered_ids: Final = RegisteredIds()
"""Those of this process."""
