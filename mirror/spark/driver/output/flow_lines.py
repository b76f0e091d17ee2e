"""Prints lines about one flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mirror.spark.driver.output.console import Consoles


class FlowLines:
    """Each line begins with the flow's name. Thread-safe."""

    def __init__(self, flow: str, consoles: Consoles) -> None:
        self.consoles: Final = consoles
        self._flow: Final = flow
        self._warned: Final = set[str]()

    def tell(self, line: str) -> None:
        """Print what the flow does, with the time."""
        self.consoles.progress(self._prefixed(line))

    def warn(self, line: str) -> None:
        """Print a warning, each time."""
        self.consoles.warning(self._prefixed(line))

    def warn_once(self, line: str) -> None:
        """Print a warning that was not printed before."""
        if line not in self._warned:
            self._warned.add(line)
            self.warn(line)

    def has_warned_of(self, name: str) -> bool:
        """Whether a warning that is printed once has this ``name``."""
        return any(name in line for line in list(self._warned))

    def error(self, line: str) -> None:
        """Print an error."""
        self.consoles.error(self._prefixed(line))

    def _prefixed(self, line: str) -> str:
        return f"flow {self._flow}: {line}"
