"""The clusters of a configuration as one command observes them: a client of each, opened when it is needed."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.closing import Closing
from mirror.cluster.settings import ClusterSettings
from mirror.errors import ConnectionFailed, KafkaTimeout, MirrorError, SeveralErrors
from mirror.observation import Side, Sides
from mirror.spark.concurrent_calls import call_concurrently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.config.models import FlowConfig, MirrorConfig


class Clusters(Closing):
    """Observes each cluster once until the block ends. For any thread."""

    def __init__(self, config: MirrorConfig, call_timeout_ms: int | None = None) -> None:
        """``call_timeout_ms`` bounds each call, beside the configuration of the clusters."""
        self._config: Final = config
        self._call_timeout_ms: Final = call_timeout_ms
        self._lock: Final = threading.Lock()
        self._sides: Final[dict[str, Side]] = {}

    def close(self) -> None:
        """Close the clients; the next observation opens new ones."""
        with self._lock:
            for side in self._sides.values():
                side.admin.close()
            self._sides.clear()

    def side(self, name: str) -> Side:
        """Return the observation of a cluster. Raises ConfigError."""
        with self._lock:
            if name not in self._sides:
                self._sides[name] = Side(name, self._client(name), self._call_timeout_ms)
            return self._sides[name]

    def of(self, flow: FlowConfig) -> Sides:
        """Return the observation of both clusters of ``flow``. Raises ConfigError."""
        return Sides(self.side(flow.source), self.side(flow.target))

    def _client(self, name: str) -> Admin:
        options = self._config.clusters[name].client_options()
        if self._call_timeout_ms is not None:
            configured = ClusterSettings.parse(options).default_api_timeout_ms
            options["default.api.timeout.ms"] = min(self._call_timeout_ms, configured)
        return Admin(options)

    def away(self, names: Iterable[str], on_waiting: Callable[[str], None] | None) -> dict[str, MirrorError]:
        """Ask these clusters for their ids at the same time; return the errors of those that do not answer, by name.

        Takes ``default.api.timeout.ms`` at most. ``on_waiting`` is called with a line about a cluster that has not
        answered after 3 s, and again every 15 s.
        """

        def ask(name: str) -> None:
            self.side(name).cluster  # noqa: B018 - a fact that is read

        found = call_concurrently("cluster", {name: partial(ask, name) for name in sorted(set(names))}, on_waiting)
        return {name: error for name, error in found.items() if error is not None}


@contextmanager
def open_sides(config: MirrorConfig, flow: FlowConfig) -> Iterator[Sides]:
    """Yield the observation of both clusters of ``flow``, and close its clients. Raises ConfigError."""
    with Clusters(config) as clusters:
        yield clusters.of(flow)


def contact(
    config: MirrorConfig, names: Iterable[str], on_waiting: Callable[[str], None] | None
) -> dict[str, MirrorError]:
    """Do what :meth:`Clusters.away` does, for a command that observes nothing."""
    with Clusters(config) as clusters:
        return clusters.away(names, on_waiting)


def check_answers(config: MirrorConfig, names: Iterable[str], on_waiting: Callable[[str], None] | None) -> None:
    """Raise the error of the first of these clusters that does not answer; see :func:`contact`."""
    for error in contact(config, names, on_waiting).values():
        raise error


def is_away(error: BaseException) -> bool:
    """Whether a cluster does not answer, or one of its partitions has no leader yet: a later attempt may succeed."""
    if isinstance(error, SeveralErrors):
        return all(map(is_away, error.errors))
    return any(isinstance(one, ConnectionFailed | KafkaTimeout) for one in (error, error.__cause__))
