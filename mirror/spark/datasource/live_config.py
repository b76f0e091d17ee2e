"""The configuration that a stream has in force: the file as it is, or as it was before a bad edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import ConfigError, Problem
from mirror.spark.ledger.live_config_store import LiveConfigStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.datasource.options import FlowOptions


class LiveConfig:
    """Loads the file again when it is asked; ``say`` hears once of what is wrong with it."""

    def __init__(self, options: FlowOptions, say: Callable[[str], None]) -> None:
        self._options: Final = options
        self._published: Final = LiveConfigStore(options.ledger)
        self._say: Final = say
        self._text: bytes | None = None
        self._good: tuple[MirrorConfig, FlowConfig] | None = None

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        """As the file says now; where that will not do, as it said before.

        Raises ConfigError, or OSError, where it was never good.
        """
        try:
            text = self._options.read()
            found = self._options.load(text)
            self._check(found[1])
        except (ConfigError, OSError) as error:
            if self._good is None:
                raise
            for line in str(error).splitlines():
                self._say(f"{line}; until that is mended, the flow goes on as before")
            return self._good
        if text != self._text:
            # For this run's tasks on this host, and its driver.
            try:
                self._published.publish(text)
            except OSError as error:
                self._say(f"tasks read the configuration file themselves, also after a bad edit: no socket: {error}")
            self._text = text
        self._good = found
        return found

    def close(self) -> None:
        """The run has ended."""
        self._published.close()

    def _check(self, flow: FlowConfig) -> None:
        """Raises ConfigError where the flow has become another one: offsets of one cluster mean nothing in another."""
        if self._good is None:
            return
        before = self._good[1]
        for key in ("source", "target", "naming"):
            if getattr(before, key) != getattr(flow, key):
                allowed = f'was "{getattr(before, key)}" when the stream began: end it, and start it again'
                raise ConfigError([Problem("", f"flows.{flow.name}.{key}", f'"{getattr(flow, key)}"', allowed)])
