"""The regular expressions of a configuration: RE2's, whose time is linear. And the names that they give."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import re2  # type: ignore[import-untyped]  # ships no types
from pydantic import AfterValidator

from mirror.config.problems import shown

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

_PLAIN: Final = r"(?:[^\\.^$|?*+()\[\]{}]|\\[^A-Za-z0-9]|\[[^\\^\[\]]\])*"
"""Text that stands for itself."""
_RULE: Final = re.compile(rf"(?P<head>{_PLAIN})(?:\((?P<group>(?!\?).*)\)(?P<tail>{_PLAIN}))?", re.DOTALL)
_QUOTED: Final = re.compile(r"\\(.)|\[(.)\]", re.DOTALL)
_GROUP_TEXT: Final = re.compile(r"\$(?:1(?![0-9])|\{1\})")


@functools.lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> tuple[Any, ...]:
    """Compile each pattern once, by RE2, whose time is linear: with Python's ``re``, "(a+)+$" can take hours."""
    return tuple(re2.compile(pattern, _RE2) for pattern in patterns)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of the regular expressions matches the whole name."""
    return any(pattern.fullmatch(name) for pattern in _compiled(patterns))


class _Rule(NamedTuple):
    """A rule of a table of names: a name that ``pattern`` matches becomes another one.

    With a group, the name is the group's text between the two texts ``around``, and becomes the same text between
    ``becomes``. Without one, both have one text, which is the whole name.
    """

    pattern: Any
    around: tuple[str, ...]
    becomes: tuple[str, ...]

    def new(self, name: str) -> str | None:
        """Return the new name; None if the pattern does not match ``name``."""
        new = _moved(name, self.around, self.becomes)
        return new if len(self.around) == 1 or (new is not None and self.pattern.fullmatch(name)) else None

    def old(self, name: str) -> str | None:
        """Return the name whose new name is ``name``; None if there is none."""
        old = _moved(name, self.becomes, self.around)
        return old if len(self.around) == 1 or (old is not None and self.pattern.fullmatch(old)) else None


def _moved(name: str, around: tuple[str, ...], becomes: tuple[str, ...]) -> str | None:
    """Return ``name`` with the texts ``around`` replaced by ``becomes``; None if it does not have them."""
    if len(around) == 1:
        return becomes[0] if name == around[0] else None
    head, tail = around
    if len(name) < len(head) + len(tail) or not (name.startswith(head) and name.endswith(tail)):
        return None
    return name[len(head) : len(name) - len(tail)].join(becomes)


# Invariant: By one rule no two names become the same: a pattern is plain text with at most one group, whose text is in
#   the new name once. So the reverse of a rule is known without a list of names.
# Test: tests/config/test_names.py::test_the_reverse_of_a_rule_is_the_name_that_it_was_given_for
def _rule(pattern: str, template: str) -> _Rule:
    """Parse a rule. Raises ValueError."""
    _regular_expression(pattern)
    found = _RULE.fullmatch(pattern)
    if found is None or (found["group"] and why_no_pattern(found["group"])):
        raise ValueError(
            f"{shown(pattern)} must be plain text with at most one group in parentheses, so that the reverse is known"
            r" (a dot as \\.)"
        )
    around = [found["head"]] if found["group"] is None else [found["head"], found["tail"]]
    becomes = _GROUP_TEXT.split(template)
    if len(becomes) != len(around) or any("$" in part for part in becomes):
        uses = (
            "has no group, so that $ has no meaning" if len(around) == 1 else "has a group, so that $1 is needed once"
        )
        raise ValueError(f"{shown(template)}: {shown(pattern)} {uses}")
    texts = (_QUOTED.sub(lambda quoted: quoted[1] or quoted[2], part) for part in around)
    return _Rule(re2.compile(pattern, _RE2), tuple(texts), tuple(becomes))


def checked_names(table: dict[str, str]) -> dict[str, str]:
    """Return a table of names: new ones by patterns of old ones. Raises ValueError with the first rule that is wrong.

    Two rules that give one name to all that they match are a collision.
    """
    given: dict[str, str] = {}
    for pattern, template in table.items():
        rule = _rule(pattern, template)
        if len(rule.around) == 1 and (other := given.setdefault(template, pattern)) != pattern:
            raise ValueError(f"{shown(other)} and {shown(pattern)} get the same name {shown(template)}")
    return table


@functools.lru_cache(maxsize=1024)
def _rules(table: tuple[tuple[str, str], ...]) -> tuple[_Rule, ...]:
    return tuple(_rule(pattern, template) for pattern, template in table)


def new_name(table: Mapping[str, str], name: str) -> str | None:
    """Return the name that the first rule of ``table`` gives that matches the whole ``name``; None if none does."""
    found = (rule.new(name) for rule in _rules(tuple(table.items())))
    return next((new for new in found if new is not None), None)


def old_names(table: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield the names that a rule of ``table`` matches and gives ``name``, also where an earlier rule matches, too."""
    return (old for rule in _rules(tuple(table.items())) if (old := rule.old(name)) is not None)


def beginnings_of_names(table: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the names begin with that ``table`` gives."""
    return tuple(rule.becomes[0] for rule in _rules(tuple(table.items())))
