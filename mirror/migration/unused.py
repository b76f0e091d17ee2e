"""Which properties of a dedicated MirrorMaker 2 have no effect, and why: it says nothing of them itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mirror.config.key_names import nearest
from mirror.migration import known_keys
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting
from mirror.migration.precedence import WORKER_PREFIXES, MirrorMakerFile, Pair
from mirror.migration.tables import equivalents

_MAX_SUGGESTIONS: Final = 100
"""A search for a similar key takes milliseconds."""
_CLIENTS: Final = ("producer.", "consumer.", "admin.")
_DRIVER: Final = (
    "clusters",
    "dedicated.mode.enable.internal.rest",
    "listeners",
    "rest.",
    "access.control.allow.",
    "response.http.headers.config",
    "ssl.client.auth",
    "plugin.path",
    "plugin.discovery",
    "config.providers",
    *WORKER_PREFIXES,
)
"""The beginnings of keys that are read at top level, beside those of connectors and clients."""
_OF_FILTERS: Final = {"topics", "groups", "topics.exclude", "groups.exclude"}
_GONE: Final[Mapping[str, str]] = {
    **{key: name for key, name in known_keys.FORMER.items() if key.endswith("blacklist")},
    "use.incremental.alter.configs": "",
    "add.source.alias.to.metrics": "metric.names.formats",
}
_ARROW: Final = re.compile(r"\s*(\S+?)\s*->\s*(\S+?)\s*\.(?=[a-z])")


class _Place(NamedTuple):
    """The level of a key: its pair or cluster, if it has one, and the rest."""

    pair: Pair | None
    alias: str
    key: str


# Invariant: No value is passed over: each line and value of the source is the origin of a line that loads, or has a
#   finding.
# Test: tests/migration/test_importing.py::test_every_line_of_a_written_file_is_accounted_for
# Test: tests/migration/test_strimzi.py::test_every_value_of_generated_resources_is_used_or_named
# Test: tests/migration/test_importing.py::test_every_line_of_generated_files_is_accounted_for
class UnusedSettings:
    """Finds the settings of ``file`` that have no effect."""

    def __init__(self, file: MirrorMakerFile) -> None:
        self._file = file
        self._clusters = file.clusters()
        self._running = file.pairs()
        self._pairs = list(file.possible_pairs())
        self._enabled = [pair for pair in self._pairs if self._is_enabled(pair)]
        self._sources = {pair.source for pair in self._enabled}
        self._suggestions = 0
        self._targets = {pair.target for pair in self._running}

    def find(self) -> Iterator[Finding]:
        """Yield a finding for each setting without effect."""
        for key, setting in self._file.properties.items():
            if reason := self._why(self._place(key), setting):
                yield about(Kind.IGNORED, setting, *reason)

    def _is_enabled(self, pair: Pair) -> bool:
        enabled = self._file.properties.get(f"{pair}.enabled") or self._file.properties.get("enabled")
        return pair in self._running and enabled is not None and enabled.value.strip().lower() == "true"

    def _place(self, key: str) -> _Place:
        for pair in self._pairs if "->" in key else ():
            if key.startswith(f"{pair}."):
                return _Place(pair, "", key.removeprefix(f"{pair}."))
        aliases = [alias for alias in self._clusters if key.startswith(f"{alias}.")]
        if aliases:
            alias = max(aliases, key=len)
            return _Place(None, alias, key.removeprefix(f"{alias}."))
        return _Place(None, "", key)

    def _why(self, place: _Place, setting: Setting) -> tuple[str, str] | None:
        if place.pair is not None:
            return self._why_of_pair(place.pair, place.key, setting)
        if place.alias:
            return self._why_of_cluster(place.alias, place.key)
        return self._why_of_top(place.key)

    def _why_of_pair(self, pair: Pair, key: str, setting: Setting) -> tuple[str, str] | None:
        if key in {"enabled", "emit.heartbeats.enabled"}:
            return None
        if pair not in self._enabled and not (pair in self._running and key in known_keys.HEARTBEAT):
            return f"{pair} is not enabled", f"set {pair}.enabled = true, or remove the line"
        if gone := _gone(key):
            return gone
        if key in known_keys.CONNECTORS or key.startswith(known_keys.CONNECTOR_PREFIXES):
            return self._hidden(pair, key, setting)
        if equivalents.remark(equivalents.WORKER, key):
            return "it is a setting of the worker, which has none of a pair", f"write {pair.target}.{key}"
        return self._unknown(key, known_keys.CONNECTORS)

    def _hidden(self, pair: Pair, key: str, setting: Setting) -> tuple[str, str] | None:
        """Return the setting of a cluster that takes precedence over one of a pair, if there is one."""
        if not key.startswith(("consumer.", "admin.")):
            return None
        other = self._file.properties.get(f"{pair.source}.{key}")
        if other is None or other.value == setting.value or f"{pair}.source.{key}" in self._file.properties:
            return None
        return f"line {other.line}, {other.key}, takes precedence", f"write {pair}.source.{key}"

    def _why_of_cluster(self, alias: str, key: str) -> tuple[str, str] | None:
        client = next((client for client in _CLIENTS if key.startswith(client)), "")
        if client == "consumer." and alias not in self._sources:
            return f"nothing is copied from {alias}", "write it for a source, or remove the line"
        if client == "producer." and alias not in self._targets and alias not in self._sources:
            return f"nothing is copied to {alias}", "write it for a target, or remove the line"
        if client or key in known_keys.CLIENT:
            return None
        if equivalents.remark(equivalents.WORKER, key):
            reason = f"it is a setting of the worker, and {alias} is no target"
            return None if alias in self._targets else (reason, "write it for the target, or remove the line")
        if key in known_keys.CONNECTORS:
            of = next((pair for pair in self._enabled if alias in pair), Pair("A", "B"))
            return "it is a setting of a pair, not of a cluster", f"write {of}.{key}"
        return self._unknown(key, known_keys.CLIENT)

    def _why_of_top(self, key: str) -> tuple[str, str] | None:
        if gone := _gone(key):
            return gone
        if key in known_keys.CONNECTORS:
            own = [f"{pair}.{key}" for pair in self._enabled]
            if own and key in _OF_FILTERS and all(name in self._file.properties for name in own):
                return f"each pair has its own: {', '.join(own)}", "remove one of them"
            return None
        if key in known_keys.CLIENT or key.startswith(_DRIVER):
            return None
        if arrow := _ARROW.match(key):
            return self._why_of_arrow(f"{arrow[1]}->{arrow[2]}", key[arrow.end() :])
        return self._misplaced(key) or self._unknown_at_top(key)

    def _why_of_arrow(self, named: str, key: str) -> tuple[str, str]:
        if named in map(str, self._pairs):
            return "blanks belong to the key", f"write {named}.{key}"
        known = ", ".join(map(str, self._pairs)) or "none"
        return f"{named} is no pair of the clusters", f"the pairs are: {known}"

    def _misplaced(self, key: str) -> tuple[str, str] | None:
        """Return what is said of a key that would have an effect at another level."""
        if key.startswith(_CLIENTS):
            end = "source" if key.startswith("consumer.") else "target"
            alias = next((getattr(pair, end) for pair in self._enabled), f"the {end}'s alias")
            return "settings of clients are read after a cluster only", f"write {alias}.{key}"
        if key.startswith(("transforms.", "predicates.")) or key == "use.defaults.from":
            return "it is read after a pair only", f"write {next(iter(self._enabled), 'A->B')}.{key}"
        if equivalents.remark(equivalents.WORKER, key):
            return "it is a setting of the worker, which is that of a target", f"write {self._a_target()}.{key}"
        return None

    def _a_target(self) -> str:
        return next((pair.target for pair in self._enabled), "TARGET")

    def _unknown_at_top(self, key: str) -> tuple[str, str]:
        alias, _, rest = key.partition(".")
        if rest in known_keys.CLIENT or rest.startswith(_CLIENTS):
            near = nearest(alias, self._clusters)
            hint = f", did you mean {near}?" if near else ""
            return f"{alias} is not in clusters{hint}", "correct the name, or add it to clusters"
        return self._unknown(key, known_keys.CONNECTORS | {"clusters"})

    def _unknown(self, key: str, known: frozenset[str]) -> tuple[str, str]:
        self._suggestions += 1
        near = nearest(key, known) if self._suggestions <= _MAX_SUGGESTIONS else None
        return "MirrorMaker 2 has no such setting", f"did you mean {near}?" if near else "remove the line"


def _gone(key: str) -> tuple[str, str] | None:
    if key not in _GONE:
        return None
    return "MirrorMaker 2 has not had it since Kafka 4.0", f"write {_GONE[key]}" if _GONE[key] else "remove the line"
