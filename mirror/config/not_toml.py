"""Explains why a configuration file is not valid TOML: a key appears twice, or it is a MirrorMaker 2 file."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from mirror.errors import printable

_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)$")
_TABLE: Final = re.compile(r"\s*\[\[?(.*?)\]\]?\s*(#.*)?")
_PROPERTY: Final = re.compile(r"[\w.>*${}-]+\s*[=:].*")
_MIRRORMAKER: Final = re.compile(r"bootstrap\.servers|->|^clusters\s*[=:]", re.MULTILINE)
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")

_MAX_LINES: Final = 20
"""How many lines back the beginning of a statement is searched: each line costs a parse of the file."""
_MAX_LENGTH: Final = 1024 * 1024
"""The keys of a larger file (in characters) are not searched."""
_MAX_KEY_LENGTH: Final = 100


def not_text(data: bytes, error: UnicodeDecodeError) -> str:
    """Return why ``data`` is not UTF-8."""
    if data.startswith(_UTF16):
        return "not UTF-8 text but UTF-16; save it as UTF-8"
    return f"not UTF-8 text, from byte {error.start} on"


def not_toml(text: str, error: ValueError) -> str:
    """Return why ``text`` is not TOML, by the parser's ``error``. The text shows keys, but never a value."""
    if _is_mirrormaker_file(text):
        return (
            "not TOML: is this a MirrorMaker 2 properties file? mirror import FILE --write mirror.toml makes a"
            ' configuration of it; see "Coming from MirrorMaker 2" in mirror/migration/README.md'
        )
    found = _duplicate(text, str(error)) if str(error).startswith("Cannot ") and len(text) <= _MAX_LENGTH else None
    return f"not TOML: {found or printable(str(error))}"


def _is_mirrormaker_file(text: str) -> bool:
    lines = [line for line in (raw.strip() for raw in text.splitlines()) if line and not line.startswith(("#", "!"))]
    if not lines or any(line.startswith("[") for line in lines):
        return False
    return all(_PROPERTY.fullmatch(line) for line in lines) and _MIRRORMAKER.search(text) is not None


def _duplicate(text: str, error: str) -> str | None:
    """Return which key or table contradicts an earlier one, and where; None if it is not found."""
    lines = text.splitlines()
    at = _LINE.search(error)
    last = min(int(at.group(1)), len(lines)) if at else len(lines)
    first = next((n for n in range(last - 1, max(-1, last - 1 - _MAX_LINES), -1) if _parses(lines[:n])), None)
    if first is None:
        return None
    if table := _TABLE.fullmatch(lines[first]):
        subject, begin = f"the table [{_shown(table.group(1))}]", 0
    else:
        begin = next((n for n in range(first, 0, -1) if _TABLE.fullmatch(lines[n - 1])), 0)
        inside = _TABLE.fullmatch(lines[begin - 1]) if begin else None
        subject = f"the key {_shown(_key(lines[first]))}{f' of [{_shown(inside.group(1))}]' if inside else ''}"
    where = next((n + 1 for n in range(begin, first) if _key(lines[n]) == _key(lines[first])), None)
    if where is None:
        return f"line {first + 1}: {subject} contradicts what is before it"
    return f"line {first + 1}: {subject} appears twice, first in line {where}; remove one"


def _parses(lines: list[str]) -> bool:
    try:
        tomllib.loads("\n".join(lines))
    except ValueError:
        return False
    return True


def _key(line: str) -> str:
    """Return the part of a line before the value, or a table's whole line."""
    return line.partition("=")[0].strip() if "=" in line else line.partition("#")[0].strip()


def _shown(key: str) -> str:
    text = printable(key.strip())
    return text if len(text) <= _MAX_KEY_LENGTH else text[:_MAX_KEY_LENGTH] + "..."
