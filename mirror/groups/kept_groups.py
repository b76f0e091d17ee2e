"""Which groups a flow keeps the positions of, by its group topic on the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Final

from mirror.client import Admin
from mirror.errors import KafkaError
from mirror.groups.intents import StoredIntents
from mirror.groups.reader import GroupReader
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock

_TIMEOUT_MS: Final = 20_000


class KeptGroups:
    """Its calls wait for the target; use it in one thread."""

    def __init__(
        self,
        target_options: Mapping[str, object],
        flow: str,
        clock: Clock,
        target_group: Callable[[str], str] = str,
        source_group: Callable[[str], str | None] = str,
    ) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used.

        ``target_group`` returns the name of the source's group on the target, ``source_group`` the reverse. Raises
        ConfigError.
        """
        self._names: Final = target_group, source_group
        self._topic: Final = FlowTopic(target_options, group_topic_of(flow))
        self._clock: Final = clock
        self._intents: Final = StoredIntents(source_group)
        self._clients: Final = ExitStack()
        self._opened: tuple[FollowedTopic, GroupReader] | None = None

    def close(self) -> None:
        """Close the connections that the calls have opened."""
        self._clients.close()

    def names(self, is_own: Callable[[str], bool], settled: Collection[str]) -> frozenset[str] | None:
        """Return the groups of which the flow has committed a position, and that have none in topics of others.

        They have their names on the source.

        ``is_own`` returns whether a target topic is the flow's. The ``settled`` groups may read others by now. None
        without the flow's topic. Raises KafkaError.
        """
        if self._opened is None:
            followed = FollowedTopic(self._topic)
            self._clients.callback(followed.close)
            admin = self._clients.enter_context(Admin(self._topic.options))
            self._opened = followed, GroupReader(admin, self._clock, _TIMEOUT_MS, *self._names)
        followed, reader = self._opened
        intents = self._intents
        followed.follow(
            self._clock,
            _TIMEOUT_MS,
            clear=intents.clear,
            take=lambda record: intents.take(record.key, record.value, record.offset),
        )
        if not followed.topic_id:
            return None
        names = frozenset(intents.partitions())
        reader.list_groups()  # who coordinates them
        offsets = reader.offsets(sorted(names.difference(settled)))
        unclear = {
            name
            for name, found in offsets.items()
            if isinstance(found, KafkaError) or found.failed or not all(is_own(tp.topic) for tp in found)
        }
        return names - unclear
