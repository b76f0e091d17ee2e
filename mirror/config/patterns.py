"""The regular expressions of a configuration: RE2's, whose time is linear."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final, TypeAlias

import re2  # type: ignore[import-untyped]  # ships no types
from pydantic import AfterValidator

_RE2: Final = re2.Options()
_RE2.log_errors = False
_MAX_PATTERN_LENGTH: Final = 10_000
_UNSUPPORTED_BY_RE2: Final = ("invalid perl operator", "invalid escape sequence")


def _regular_expression(pattern: str) -> str:
    if not pattern:
        raise ValueError("an empty pattern matches nothing; write a name or a regular expression")
    if len(pattern) > _MAX_PATTERN_LENGTH:
        raise ValueError(f"not a regular expression: longer than {_MAX_PATTERN_LENGTH} characters")
    try:
        re2.compile(pattern, _RE2)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        hint = (
            "; look-around and back-references are not supported (RE2)"
            if reason.startswith(_UNSUPPORTED_BY_RE2)
            else ""
        )
        raise ValueError(f"not a regular expression: {reason}{hint}") from None
    except UnicodeEncodeError:
        raise ValueError("not a regular expression: not text that UTF-8 can encode") from None
    return pattern


# Invariant: A pattern takes time linear in the name: only RE2's expressions are accepted.
# Test: tests/config/test_hostile.py::test_no_pattern_takes_exponential_time
def why_no_pattern(pattern: str) -> str | None:
    """Return why ``pattern`` is no regular expression of a configuration; None if it is one."""
    try:
        _regular_expression(pattern)
    except ValueError as error:
        return str(error)
    return None


Pattern: TypeAlias = Annotated[str, AfterValidator(_regular_expression)]


@functools.lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> tuple[Any, ...]:
    """Compile each pattern once, by RE2, whose time is linear: with Python's ``re``, "(a+)+$" can take hours."""
    return tuple(re2.compile(pattern, _RE2) for pattern in patterns)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of the regular expressions matches the whole name."""
    return any(pattern.fullmatch(name) for pattern in _compiled(patterns))
