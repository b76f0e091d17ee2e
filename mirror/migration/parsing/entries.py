"""The values of MirrorMaker 2's settings, each with the line and the key that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mirror.config.key_names import is_secret

HIDDEN: Final = "***"
_MAX_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """A value with its origin: a ``key`` in ``line`` (from 1) of the file, or a default of MirrorMaker 2 (line 0)."""

    value: str = field(repr=False)
    line: int
    key: str

    @property
    def origin(self) -> str:
        """The origin as it is named in comments and findings."""
        return f"line {self.line}: {self.key}" if self.line else f"default of {self.key}"

    def shown(self) -> str:
        """Return the value as it may be printed: on one line, shortened if it is long, and hidden if it is a secret."""
        return shown(self.key, self.value)


Settings: TypeAlias = Mapping[str, Setting]


def default(key: str, value: str) -> Setting:
    """Return MirrorMaker 2's default of a key."""
    return Setting(value, 0, key)


def shown(key: str, value: str) -> str:
    """Return the value of a key as it may be printed; a reference to a secret is not itself one."""
    if is_secret((key,)) and value and not (value.startswith("${") and value.endswith("}") and value.count("}") == 1):
        return HIDDEN
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
