"""What is wrong with a configuration, in words: one line each, and never a secret in it."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mirror.config.naming import KeyPath, dotted, is_secret, suggestion
from mirror.errors import Problem, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

HIDDEN: Final = "***"
NOT_SET: Final = "(not set)"

_WORD: Final = re.compile(r"[^\s\"',/]+")
"""Taken whole: a pattern for what stands before an ``@`` would look from each character of a megabyte to its end."""
_LONGEST_VALUE: Final = 80
_LONGEST_LIST: Final = 16


class PlainProblem(Problem):
    """A problem of a file as a whole, or of a variable: its text has no key and no value."""

    __slots__ = ()

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        return f"{place}: {self.allowed}"


def plain(where: str, key: str, text: str) -> PlainProblem:
    """A problem without a value to show: ``where: key: text``."""
    return PlainProblem(printable(where), printable(key), "", text)


class Sources:
    """Where each value came from: the file, unless something overrode it."""

    def __init__(self, file: str, overrides: Mapping[KeyPath, str]) -> None:
        self.file = printable(file)
        self._overrides = overrides

    def where(self, path: KeyPath) -> str:
        """The file, the variable or the secret's file that ``path`` was read from."""
        return self._overrides.get(path, self.file)

    def problem(self, path: KeyPath, value: object, allowed: str) -> Problem:
        """A problem with the value at ``path``; a secret is hidden by its type and by its name."""
        return Problem(self.where(path), dotted(path), HIDDEN if is_secret(path) else shown(value), allowed)

    def unknown(self, path: KeyPath, value: object, known: Iterable[str]) -> Problem:
        """A problem with a key that does not exist.

        Its value is not shown: it may be a password under a misspelt key.
        """
        names = sorted(known)
        if isinstance(value, Mapping) and any(name.startswith(path[-1] + ".") for name in names):
            return self.problem(path, value, 'unknown key; a key with dots must be in quotes, as "bootstrap.servers"')
        others = f"; known here: {', '.join(names)}" if len(names) <= _LONGEST_LIST else ""
        allowed = "unknown key" + (suggestion(path[-1], names) or others)
        return self.problem(path, value if isinstance(value, Mapping) else SecretStr(""), allowed)


def shown(value: object) -> str:
    """``value`` as TOML would write it, on one line and not too long. A table's content is never shown."""
    match value:
        case None:
            return NOT_SET
        case SecretStr():
            return HIDDEN
        case Mapping():
            return "a table"
        case bool() | str():
            text = printable(json.dumps(value, ensure_ascii=False))
        case int():
            text = str(value) if abs(value) < 2**64 else "(an integer too large)"
        case list() | tuple():
            text = "[" + ", ".join(shown(item) for item in value) + "]"
        case dt.datetime() | dt.date() | dt.time():
            text = value.isoformat()
        case _:
            text = printable(str(value))
    text = without_credentials(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def without_credentials(text: str) -> str:
    """``text`` without what stands before an ``@``, as in ``user:password@host``."""
    return _WORD.sub(_without_credentials, text) if "@" in text else text


def _without_credentials(word: re.Match[str]) -> str:
    *before, last = word.group().split("@")
    return "".join((HIDDEN if part else "") + "@" for part in before) + last


def model_problems(
    error: ValidationError, prefix: KeyPath, sources: Sources, allowed: Mapping[str, str]
) -> list[Problem]:
    """What pydantic found in the table at ``prefix``; ``allowed`` says for each known key what is right."""
    details = error.errors(include_url=False)
    # What is inside a client's table (a key of text, not an item's number) is told by the client's own settings.
    mine = [detail for detail in details if not any(isinstance(part, str) for part in detail["loc"][1:])]
    # A list whose items are all wrong counts as an empty one, too: the items' problems say more.
    lists = {detail["loc"][:-1] for detail in mine if len(detail["loc"]) > 1}
    return [_model_problem(detail, prefix, sources, allowed) for detail in mine if detail["loc"] not in lists]


def _model_problem(detail: ErrorDetails, prefix: KeyPath, sources: Sources, allowed: Mapping[str, str]) -> Problem:
    key, *index = (str(part) for part in detail["loc"])
    path = (*prefix, key)
    if detail["type"] == "missing":
        return sources.problem(path, None, f"required: {allowed[key]}")
    found = detail["input"]
    if detail["type"] == "value_error":
        return sources.problem(path, found, str(detail["ctx"]["error"]))
    if index and not isinstance(found, str):
        return sources.problem(path, found, f"must be {allowed[key]}; this item is not text")
    return sources.problem(path, found, f"must be {allowed[key]}")
