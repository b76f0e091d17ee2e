"""Lists of Java's regular expressions, as MirrorMaker 2 matches names with them, as those of RE2.

MirrorMaker 2 splits a list at its commas and joins the items with ``|`` to one expression, which must match a whole
name (``MirrorUtils.compilePatternList``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mirror.config.patterns import why_no_pattern
from mirror.migration.parsing.entries import Setting, shown
from mirror.migration.precedence import items

_REFUSED: Final = "Java refuses "
"""So a problem begins that keeps MirrorMaker 2 itself from starting."""
ILLEGAL_REPETITION: Final = f"{_REFUSED}a {{ that begins no repetition such as {{2}} (Illegal repetition)"

_ESCAPE: Final = 2
_COUNT: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_WITH_BRACES: Final = re.compile(r"\\[pPx]\{[^{}]*\}[*+?]?")
_CLASS: Final = re.compile(r"\[\^?\]?")
"""The beginning of a class of characters, in which a ] is a character if it is the first one."""
_PROPERTY: Final = re.compile(r"\\[pP](?:\{([^{}]*)\}|([^{]))")
_CATEGORIES: Final = {
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No"),
    *("P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp"),
    *("Cc", "Cf", "Co", "Cs"),
}
"""Names of properties that both know. Java takes characters that are not assigned for such of C, too."""
_NAMED_GROUP: Final = re.compile(r"\(\?<([^(>]*)>")
_LETTERS: Final = re.compile("[a-zA-Z]*")
_GROUP_NAME: Final = re.compile("[a-zA-Z][a-zA-Z0-9]*")
_MAX_PATTERNS: Final = 1_000
_JOINS: Final = re.compile(r"\(\?[a-zA-Z]+\)|\\Q")
"""What continues in the following items: flags, and a quotation that may lack its end."""
_REPEATED_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]*\)(\\Q\\E)*[*+?{]")
_UNICODE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")
_SURROGATES: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
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
    "C": f"{_REFUSED}\\C (unsupported escape sequence)",
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
    if problem := read_otherwise(joined):
        return Patterns(problem=problem)
    return Patterns(tuple(apart))


def _for_re2(pattern: str) -> str:
    # Two halves of UTF-16 are one character to Java.
    whole = _SURROGATES.sub(lambda match: f"{match[1]}\\x{{{_code_point(match[2], match[3]):x}}}", pattern)
    return _UNICODE.sub(r"\1\\x{\2}", whole)


def _code_point(high: str, low: str) -> int:
    return ord(bytes.fromhex(high + low).decode("utf-16-be"))


def why_java_refuses(fields: Iterable[str]) -> str:
    """Return why MirrorMaker 2 refuses a list of these items; an empty text if no reason is known."""
    problem = read_otherwise("|".join(fields))
    return problem if problem.startswith(_REFUSED) else ""


def read_otherwise(pattern: str) -> str:
    """Return how RE2 differs from Java in reading ``pattern``; an empty text if no difference is known."""
    at, in_class = 0, False
    names: set[str] = set()
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at)
            at = len(pattern) if end < 0 else end + _ESCAPE
            continue
        char = pattern[at]
        if char == "\\":
            braces = _WITH_BRACES.match(pattern, at)
            problem, step = _escape(pattern, at), len(braces[0]) if braces else _ESCAPE
        elif in_class:
            problem, step = _in_class(pattern, at), 1
            in_class = char != "]"
        else:
            begin = _CLASS.match(pattern, at)
            problem, step = _outside(pattern, at, names), len(begin[0]) if begin else 1
            in_class = begin is not None
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


def _outside(pattern: str, at: int, names: set[str]) -> str:
    """Return the difference outside classes; ``names`` are those of groups so far, and a new one is added."""
    if pattern[at] == "(":
        return _group(pattern, at) or _group_name(pattern, at, names)
    if pattern[at] == "{" and not _COUNT.match(pattern, at):
        return ILLEGAL_REPETITION
    if pattern[at] == "+" and at and pattern[at - 1] in "*+?}" and not pattern.endswith("\\", 0, at - 1):
        return f"{pattern[at - 1]}+ does not backtrack in Java, which RE2 does not have"
    return ""


def _escape(pattern: str, at: int) -> str:
    char = pattern[at + 1 : at + _ESCAPE]
    if char.isdigit():
        return f"\\{char} refers back to a group, or is octal, which RE2 does not read"
    named = _PROPERTY.match(pattern, at)
    name = (named[1] or named[2] or "") if named else ""
    if named is None or name in _CATEGORIES:
        return _OTHER_ESCAPES.get(char, "")
    if name == "C":
        return f"{named[0]} has characters that are not assigned in Java, and not in RE2"
    if why_no_pattern(named[0]) is None:
        return f"{_REFUSED}{named[0]} (Unknown character property name)"
    return ""


def _group(pattern: str, at: int) -> str:
    if not pattern.startswith("(?", at):
        return ""
    for begin, problem in _GROUPS.items():
        if pattern.startswith(begin, at + 2):
            return problem
    if _REPEATED_FLAGS.match(pattern, at):
        return "a repetition of flags is one of nothing in Java, and of what is before them in RE2"
    flags = _LETTERS.match(pattern, at + 2)
    return next((_FLAGS[flag] for flag in (flags[0] if flags else "") if flag in _FLAGS), "")


def _group_name(pattern: str, at: int, names: set[str]) -> str:
    if pattern.startswith("(?P", at):
        return f"{_REFUSED}(?P (Unknown inline modifier); a group with a name begins with (?<name>"
    named = _NAMED_GROUP.match(pattern, at)
    if named is None:
        return ""
    if not _GROUP_NAME.fullmatch(named[1]):
        return f"{_REFUSED}{shown('', named[0])}: the name of a group has Latin letters and digits only, a letter first"
    if named[1] in names:
        return f"{_REFUSED}a second group with the name {shown('', named[1])}: the items of a list are one expression"
    names.add(named[1])
    return ""
