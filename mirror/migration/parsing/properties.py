r"""Reads Java's properties format, as ``java.util.Properties.load(InputStream)`` does.

MirrorMaker 2 (``Utils.loadProps``) reads its file in this way, which means as ISO-8859-1: a character beyond that has
to be written as ``\uXXXX``, and UTF-8 text is read as other characters. Nothing here is an error for Java but a wrong
``\u``; what a file's writer did not mean is found by :mod:`mirror.migration.lint`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = " \t\f"
_UNICODE_DIGITS: Final = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_LENGTH: Final = 4


class MalformedEscape(ValueError):
    r"""A ``\u`` without four hexadecimal digits, or with half of a character. Its text names the line."""


@dataclass(frozen=True, slots=True)
class Property:
    """One key with its value, in ``line`` (from 1) to ``last_line`` of the file."""

    key: str
    value: str = field(repr=False)
    line: int
    last_line: int
    raw: str = field(repr=False)
    """The logical line: continuations joined, escapes as they are."""
    continued_into: tuple[str, ...] = field(default=(), repr=False)
    """The natural lines that were appended, without their leading blanks."""


def parse(text: str) -> list[Property]:
    """Return the properties of a file in their order, repeated keys included. Raises MalformedEscape."""
    return [_property(*logical) for logical in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """Yield each logical line, its first and last line number, and the natural lines that it continues into."""
    lines = _LINE_END.split(text)
    last = len(lines) - (len(lines) > 1 and not lines[-1])
    joined, first, continued = "", 0, False
    appended: list[str] = []
    for number, natural in enumerate(lines, start=1):
        line = natural.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continued = False
            continue
        if not continued:
            first = number
        if joined:
            appended.append(line)
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continued else line
        if not continued or number >= last:
            if joined or not text.endswith("\r\n"):  # Java makes a property of a last line that is a backslash alone.
                yield joined, first, number, tuple(appended)
            joined, appended, continued = "", [], False


def _property(line: str, first: int, last: int, appended: tuple[str, ...]) -> Property:
    end, escaped = 0, False
    while end < len(line) and (escaped or line[end] not in "=: \t\f"):
        escaped = line[end] == "\\" and not escaped
        end += 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescaped(line[:end], first), _unescaped(rest, first), first, last, line, appended)


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts, at = [], 0
    while (backslash := text.find("\\", at)) >= 0:
        parts.append(text[at:backslash])
        char = text[backslash + 1 : backslash + 2]
        at = backslash + 2
        if char == "u":
            digits = text[at : at + _UNICODE_LENGTH]
            if not _UNICODE_DIGITS.fullmatch(digits):
                raise MalformedEscape(f"line {line}: \\u must be followed by four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            at += _UNICODE_LENGTH
        else:
            parts.append(_ESCAPES.get(char, char))
    parts.append(text[at:])
    try:  # Java's characters are UTF-16: two escapes may be one character.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MalformedEscape(f"line {line}: \\u writes half of a character") from None
