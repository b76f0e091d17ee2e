"""The problems of a configuration: one line each, without secrets."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mirror.cluster import keys
from mirror.cluster.auth.security import SECURITY_KEYS
from mirror.config.key_names import KeyPath, dotted, is_secret, nearest, suggestion
from mirror.errors import Problem, printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

HIDDEN: Final = keys.HIDDEN
NOT_SET: Final = keys.NOT_SET

_WORD: Final = re.compile(r"[^\s\"',/]+")
"""Words are matched whole: a pattern for the part before an ``@`` takes quadratic time on a long text without one."""
_SECRETS: Final = frozenset(name for name, key in SECURITY_KEYS.items() if key.secret)
"""Compared with the keys of every table: a secret may stand in a wrong one."""
_CLIENTS: Final = frozenset({"producer", "consumer"})
_MAX_VALUE_LENGTH: Final = 80
_MAX_NAMES_LISTED: Final = 16
_REFUSED: Final = {
    "epoch-ms": "refused: nothing ends a stream's copies by the clock any more; period-ms is how often it sums them up",
    "max-bytes-per-epoch": "refused: its name is max-bytes-per-run",
    "max-bytes-per-job": "refused: its name is max-bytes-per-run",
    "verify": "refused: nothing is read back while it is copied; `mirror verify` compares a copy with its source",
}
"""Why there is no such key, where the name of another one would not explain it."""


class PlainProblem(Problem):
    """A problem of a whole file or of a variable: its text has no key and no value."""

    __slots__ = ()

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        return f"{place}: {self.allowed}"


def plain(where: str, key: str, text: str) -> PlainProblem:
    """Return a problem without a value: ``where: key: text``."""
    return PlainProblem(printable(where), printable(key), "", text)


class Sources:
    """The origin of each value: the file, unless it was overridden."""

    def __init__(self, file: str, overrides: Mapping[KeyPath, str]) -> None:
        self.file = printable(file)
        self._overrides = overrides

    def where(self, path: KeyPath) -> str:
        """Return the file, the variable or the secrets file that the value at ``path`` was read from."""
        return self._overrides.get(path, self.file)

    def problem(self, path: KeyPath, value: object, allowed: str) -> Problem:
        """Return a problem with the value at ``path``; a secret is hidden, by its type and by its name."""
        return Problem(
            self.where(path), dotted(path), HIDDEN if value is not None and is_secret(path) else shown(value), allowed
        )

    def unknown(self, path: KeyPath, value: object, valid: Iterable[str]) -> Problem:
        """Return a problem with a key that does not exist. Its value is hidden if it may be a secret."""
        if (reason := _REFUSED.get(path[-1])) is not None:
            return self.problem(path, value, reason)
        names = sorted(valid)
        if isinstance(value, Mapping) and any(name.startswith(path[-1] + ".") for name in names):
            return self.problem(path, value, 'unknown key; a key with dots must be in quotes, as "bootstrap.servers"')
        others = f"; known here: {', '.join(names)}" if len(names) <= _MAX_NAMES_LISTED else ""
        allowed = "unknown key" + (suggestion(path[-1], names) or others)
        return self.problem(path, value if _is_harmless(path[-1], value) else SecretStr(""), allowed)

    def misplaced(self, path: KeyPath, value: object, cluster: Container[str]) -> Problem:
        """Return a problem with a key of the wrong table. Only the ``cluster`` keys are known not to be secrets."""
        known = path[-1] in cluster or _is_harmless(path[-1], value)
        return self.problem(path, value if known else SecretStr(""), "belongs to the cluster's table")


def _is_harmless(unknown: str, value: object) -> bool:
    """Whether the value of an unknown key is no secret, however the key was misspelt. A text may always be one."""
    if isinstance(value, int):
        return nearest(unknown, _SECRETS) is None
    return isinstance(value, Mapping)  # whose content is not shown


# Invariant: No error shows a secret.
# Test: tests/config/test_secrets.py::test_no_error_shows_a_secret
def shown(value: object) -> str:
    """Return ``value`` as in TOML, on one line and shortened if it is long. A table's content is never shown."""
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
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 3] + "..."


def without_credentials(text: str) -> str:
    """Return ``text`` with the part before each ``@`` hidden, as in ``user:password@host``."""
    return _WORD.sub(_without_credentials, text) if "@" in text else text


def _without_credentials(word: re.Match[str]) -> str:
    *before, last = word.group().split("@")
    return "".join((HIDDEN if part else "") + "@" for part in before) + last


def model_problems(
    error: ValidationError, prefix: KeyPath, sources: Sources, allowed: Mapping[str, str]
) -> list[Problem]:
    """Return pydantic's errors in the table at ``prefix`` as problems; ``allowed`` has each key's valid values."""
    details = error.errors(include_url=False)
    # Errors inside a client's table are reported by the client's settings.
    own = [detail for detail in details if detail["loc"][0] not in _CLIENTS or len(detail["loc"]) == 1]
    # A list whose items are all wrong also counts as empty: its items' problems are more useful.
    lists = {detail["loc"][:-1] for detail in own if len(detail["loc"]) > 1}
    return [_model_problem(detail, prefix, sources, allowed) for detail in own if detail["loc"] not in lists]


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
