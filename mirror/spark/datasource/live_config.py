"""The configuration that a stream uses: the file as it is now, or its last valid version after an invalid edit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mirror.errors import ConfigError, Problem
from mirror.relay.model.way import Way
from mirror.spark.ledger.live_config_store import LiveConfigStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.datasource.options import FlowOptions


_KEPT: Final = ("source", "target", "naming", "delivery", "origin", "origin_from", "register_producers")


class LiveConfig:
    """Loads the file again at each call, and reports an invalid edit with ``warn``."""

    def __init__(self, options: FlowOptions, warn: Callable[[str], None]) -> None:
        self._options: Final = options
        self._store: Final = LiveConfigStore(options.ledger)
        self._warn: Final = warn
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
