"""The configuration that a stream uses: the file as it is now, or its last valid version after an invalid edit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mirror.config.naming import dotted
from mirror.errors import ConfigError, Problem
from mirror.relay.model.way import Way
from mirror.spark.ledger.ledger import REREAD
from mirror.spark.ledger.live_config_store import LiveConfigStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.datasource.options import FlowOptions


_KEPT: Final = ("source", "target", "naming", "delivery", "origin", "origin_from", "register_producers")

_OF_TOPICS: Final = ("topics", "topics-exclude")
"""What they add is prepared on the target first, by the driver, which loads the configuration this often."""


class LiveConfig:
    """Loads the file again at each call, and reports an invalid edit with ``warn``, a valid one with ``tell``."""

    def __init__(self, options: FlowOptions, warn: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._options: Final = options
        self._store: Final = LiveConfigStore(options.ledger)
        self._warn: Final = warn
        self._tell: Final = tell
        self._text: bytes | None = None
        self._valid: tuple[MirrorConfig, FlowConfig] | None = None

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        """Return the configuration in the file now, or if that is invalid, the last valid one.

        Raises ConfigError or OSError if there has been no valid one yet.
        """
        try:
            text = self._options.read()
            loaded = self._options.load(text)
            self._check(loaded[1])
        except (ConfigError, OSError) as error:
            if self._valid is None:
                raise
            for line in str(error).splitlines():
                self._warn(f"{line}; until this is corrected, the flow keeps its previous configuration")
            return self._valid
        if text != self._text:
            # For the tasks of this run on this host, and its driver.
            try:
                self._store.publish(text)
            except OSError as error:
                self._warn(
                    f"tasks read the configuration file themselves, even after an invalid edit: no socket: {error}"
                )
            self._text = text
            if self._valid is not None and (changes := reread_line(self._valid[0], loaded[0], loaded[1].name)):
                self._tell(changes)
        self._valid = loaded
        return loaded

    def close(self) -> None:
        """Stop serving the configuration to the tasks."""
        self._store.close()

    def _check(self, flow: FlowConfig) -> None:
        """Raise ConfigError for what must not change while the stream runs.

        Offsets of one cluster are meaningless in another. Copies of an ended epoch go on under a lease: at least once,
        one could commit over what the next epoch copies exactly once. Registries begin before the stream does, and the
        copies under a lease would go on to write what is not registered.
        """
        if self._valid is None:
            return
        before = self._valid[1]
        for name in _KEPT:
            was, wanted = (json.dumps(getattr(one, name)) for one in (before, flow))
            if was != wanted:
                key, allowed = name.replace("_", "-"), f"was {was} when the stream began: stop it, and start it again"
                raise ConfigError([Problem("", f"flows.{flow.name}.{key}", wanted, allowed)])
        for table in type(flow).sections():
            if getattr(before, table) != getattr(flow, table):
                allowed = "was another when the stream began: stop it, and start it again"
                raise ConfigError([Problem("", f"flows.{flow.name}.{table}", "a table", allowed)])
        if (
            before.transform != flow.transform
            and before.exactly_once
            and before.exactly_once_by != Way.TRANSACTIONS.value
        ):
            # By sequences the next attempts compare what was appended with what they would write.
            allowed = f'was "{before.transform}" when the stream began: stop the stream, and start it again'
            raise ConfigError([Problem("", f"flows.{flow.name}.transform", f'"{flow.transform}"', allowed)])


def reread_line(before: MirrorConfig, after: MirrorConfig, name: str) -> str | None:
    """Return the line about what an edit has changed for flow ``name``, without values, and when that takes effect.

    None if it has changed nothing of this flow. Added and removed flows are in the line of the first one.
    Pure.
    """
    flow, other = before.flows[name], after.flows[name]
    fields = type(flow).model_fields.items()
    keys = [str(field.alias) for key, field in fields if getattr(flow, key) != getattr(other, key)]
    of_topics = [key for key in keys if key in _OF_TOPICS]
    now = [key for key in keys if key not in _OF_TOPICS]
    for cluster in (flow.source, flow.target):
        was, wanted = before.clusters[cluster].options, after.clusters[cluster].options
        changed = sorted(key for key in was.keys() | wanted.keys() if was.get(key) != wanted.get(key))
        now += [dotted(("clusters", cluster, key)) for key in changed]
    parts = []
    if now:
        parts.append(f"{', '.join(now)} from this epoch on")
    if of_topics:
        parts.append(f"{', '.join(of_topics)} within {other.refresh_ms / 1000:g} s (refresh-ms)")
    if name == next(iter(before.flows)) and (flows := sorted(before.flows.keys() ^ after.flows.keys())):
        parts.append(f"flows that are added or removed ({', '.join(flows)}) once the stream is started again")
    return REREAD + "; ".join(parts) if parts else None
