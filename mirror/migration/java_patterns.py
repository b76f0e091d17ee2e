"""Lists of Java's regular expressions, as MirrorMaker 2 matches names with them, as those of RE2.

MirrorMaker 2 splits a list at its commas and joins the items with ``|`` to one expression, which must match a whole
name (``MirrorUtils.compilePatternList``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mirror.config.patterns import why_no_pattern
from mirror.migration.parsing.entries import Setting, shown
from mirror.migration.precedence import items

ILLEGAL_REPETITION: Final = "Java refuses a { that begins no repetition such as {2} (Illegal repetition)"

_ESCAPE: Final = 2
_COUNT: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_WITH_BRACES: Final = re.compile(r"\\[pPx]\{[^}]*\}[*+?]?")
_MAX_PATTERNS: Final = 1_000
_JOINS: Final = re.compile(r"\(\?[a-zA-Z]+\)|\\Q")
"""What continues in the following items: flags, and a quotation that may lack its end."""
_REPEATED_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]*\)(\\Q\\E)*[*+?{]")
_UNICODE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")
_OTHER_ESCAPES: Final = {
    "v": "\\v is one of several vertical blanks in Java, and a vertical tab in RE2",
    "Z": "\\Z is not known to RE2",
    "G": "\\G is not known to RE2",
    "X": "\\X is not known to RE2",
    "R": "\\R is not known to RE2",
    "N": "\\N is not known to RE2",
    "h": "\\h is not known to RE2",
    "H": "\\H is not known to RE2",
    "V": "\\V is not known to RE2",
    "e": "\\e is not known to RE2",
    "c": "\\c is not known to RE2",
    "k": "\\k refers back to a group, which RE2 does not do",
}
_GROUPS: Final = {
    "=": "(?= looks ahead, which RE2 does not do",
    "!": "(?! looks ahead, which RE2 does not do",
    "<=": "(?<= looks behind, which RE2 does not do",
    "<!": "(?<! looks behind, which RE2 does not do",
    ">": "(?> is a group without backtracking, which RE2 does not have",
}
_FLAGS: Final = {
    "U": "(?U) makes classes such as \\w those of Unicode in Java, and repetitions reluctant in RE2",
    "x": "(?x) allows comments in Java, and is not known to RE2",
    "u": "(?u) is not known to RE2",
    "d": "(?d) is not known to RE2",
}


@dataclass(frozen=True, slots=True)
class Patterns:
    """The expressions of a list for RE2, or why there are none."""

    patterns: tuple[str, ...] = ()
    problem: str = ""


def convert(setting: Setting) -> Patterns:
    """Return the expressions of a list that match the same names. An empty list matches nothing."""
    fields = items(setting)
    if len(fields) > _MAX_PATTERNS:
        return Patterns(problem=f"{len(fields)} expressions, more than {_MAX_PATTERNS}")
    apart = list(dict.fromkeys(_for_re2(field) for field in fields if field))
    together = any(_JOINS.search(field) or why_no_pattern(field) for field in apart)
    joined = "|".join(map(_for_re2, fields))
    if together and len(fields) > 1 and why_no_pattern(joined) is None:
        apart = [joined]
    for field in apart:
        if problem := read_otherwise(field) or why_no_pattern(field):
            return Patterns(problem=f"{shown('', field)}: {problem}")
    return Patterns(tuple(apart))


def _for_re2(pattern: str) -> str:
    return _UNICODE.sub(r"\1\\x{\2}", pattern)


def read_otherwise(pattern: str) -> str:
    """Return how RE2 differs from Java in reading ``pattern``; an empty text if no difference is known."""
    at, in_class = 0, False
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at)
            at = len(pattern) if end < 0 else end + _ESCAPE
            continue
        char = pattern[at]
        if char == "\\":
            braces = _WITH_BRACES.match(pattern, at)
            problem, step = _escape(pattern[at + 1 : at + _ESCAPE]), len(braces[0]) if braces else _ESCAPE
        elif in_class:
            problem, step = _in_class(pattern, at), 1
            in_class = char != "]"
        else:
            problem, step = _outside(pattern, at), 1 + (char == "[" and pattern.startswith("^", at + 1))
            in_class = char == "["
        if problem:
            return problem
        at += step
    return ""


def _in_class(pattern: str, at: int) -> str:
    if pattern.startswith("&&", at):
        return "&& intersects classes of characters in Java, and is two characters in RE2"
    if pattern[at] == "[":
        return "a [ in a class of characters is a class of its own in Java, and a character in RE2"
    return ""


def _outside(pattern: str, at: int) -> str:
    if pattern[at] == "(":
        return _group(pattern, at)
    if pattern[at] == "{" and not _COUNT.match(pattern, at):
        return ILLEGAL_REPETITION
    if pattern[at] == "+" and at and pattern[at - 1] in "*+?}" and not pattern.endswith("\\", 0, at - 1):
        return f"{pattern[at - 1]}+ does not backtrack in Java, which RE2 does not have"
    return ""


def _escape(char: str) -> str:
    if char.isdigit():
        return f"\\{char} refers back to a group, or is octal, which RE2 does not read"
    return _OTHER_ESCAPES.get(char, "")


def _group(pattern: str, at: int) -> str:
    if not pattern.startswith("(?", at):
        return ""
    for begin, problem in _GROUPS.items():
        if pattern.startswith(begin, at + 2):
            return problem
    if _REPEATED_FLAGS.match(pattern, at):
        return "a repetition of flags is one of nothing in Java, and of what is before them in RE2"
    flags = re.match(r"[a-zA-Z]*", pattern[at + 2 :])
    return next((_FLAGS[flag] for flag in (flags[0] if flags else "") if flag in _FLAGS), "")
