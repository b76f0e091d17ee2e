"""Configuration keys under Kafka's own names, and their parser."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mirror.errors import ConfigError, Problem
from mirror.timing import FOREVER_MS
from mirror.wire.integers import INT32_MAX

Kind = Literal["str", "int", "bool", "list", "secret", "callable"]

HIDDEN: Final = "***"
NOT_SET: Final = "(not set)"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. ``low`` and ``high`` bound an int, ``choices`` a str; ``unit`` is ms, bytes or empty."""

    name: str
    kind: Kind
    default: Any
    doc: str
    low: int = 0
    high: int = INT32_MAX
    choices: tuple[Any, ...] = ()

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind == "secret"

    def show(self, value: object) -> str:
        """Return ``value`` as it may appear in an error."""
        return HIDDEN if self.secret else repr(value)

    def read(self, value: object) -> Any:
        """Check ``value`` and convert it to its type. Raises ValueError whose text says what is allowed."""
        if self.kind == "int":
            return self._read_int(value)
        if self.kind == "bool":
            return self._read_bool(value)
        if self.kind == "list":
            return self._read_list(value)
        if self.kind == "callable":
            if not callable(value):
                msg = "must be a function"
                raise ValueError(msg)
            return value
        if not isinstance(value, str):
            msg = "must be a string"
            raise ValueError(msg)  # noqa: TRY004 - one exception type for every wrong value
        if self.choices and value not in self.choices:
            raise ValueError(self._allowed_choices())
        return value

    def _read_int(self, value: object) -> int:
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            top = "2^63 - 1" if self.high == FOREVER_MS else "2^31 - 1" if self.high == INT32_MAX else str(self.high)
            msg = f"must be a whole number from {self.low} to {top}"
            raise ValueError(msg)
        if self.choices and value not in self.choices:
            raise ValueError(self._allowed_choices())
        return value

    def _read_bool(self, value: object) -> bool:
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            value = value.lower() == "true"
        if not isinstance(value, bool):
            msg = "must be true or false"
            raise ValueError(msg)  # noqa: TRY004 - one exception type for every wrong value
        if self.choices and value not in self.choices:
            raise ValueError(self._allowed_choices())
        return value

    def _read_list(self, value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable) or not all(isinstance(item, str) for item in items):
            msg = "must be a list of strings, or one string with commas"
            raise ValueError(msg)
        return tuple(stripped for item in items if (stripped := item.strip()))

    def _allowed_choices(self) -> str:
        return "must be " + " or ".join(repr(choice) for choice in self.choices)


def read_keys(keys: Mapping[str, Key], options: Mapping[str, object], where: str) -> dict[str, Any]:
    """Return the value of every key, by default where ``options`` has none. Raises ConfigError with all problems."""
    problems = [unknown_key(keys, name, where) for name in options if name not in keys]
    values: dict[str, Any] = {}
    for name, key in keys.items():
        if name not in options:
            values[name] = key.default
            continue
        try:
            values[name] = key.read(options[name])
        except ValueError as error:
            problems.append(Problem(where, name, key.show(options[name]), str(error)))
    if problems:
        raise ConfigError(problems)
    return values


def unknown_key(keys: Mapping[str, Key], name: str, where: str) -> Problem:
    """Return the problem of an unknown key, without its value, which may be a secret."""
    close = difflib.get_close_matches(name, keys, n=1)
    hint = f"unknown key; did you mean {close[0]!r}?" if close else "unknown key"
    return Problem(where, name, HIDDEN, hint)
