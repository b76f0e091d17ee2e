"""What to say of a configuration file that cannot be read as TOML: which key is there twice, or what it is instead."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from mirror.errors import printable

_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)$")
_TABLE: Final = re.compile(r"\s*\[\[?(.*?)\]\]?\s*(#.*)?")
_PROPERTY: Final = re.compile(r"[\w.>*${}-]+\s*[=:].*")
_OF_MIRRORMAKER: Final = re.compile(r"bootstrap\.servers|->|^clusters\s*[=:]", re.MULTILINE)
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")

_MOST_LINES: Final = 20
"""How many lines back the beginning of a statement is looked for: each takes a parse of the file."""
_LARGEST: Final = 1024 * 1024
"""Characters of a file whose keys are looked for."""
_LONGEST_KEY: Final = 100


def not_text(data: bytes, error: UnicodeDecodeError) -> str:
    """Why ``data`` is no UTF-8."""
    if data.startswith(_UTF16):
        return "not UTF-8 text but UTF-16; save it as UTF-8"
    return f"not UTF-8 text, from byte {error.start} on"


def not_toml(text: str, error: ValueError) -> str:
    """Why ``text`` is no TOML, by the parser's ``error``. Shows keys and never a value."""
    if _is_of_mirrormaker(text):
        return (
            "not TOML: is this a MirrorMaker 2 properties file? Here clusters and flows are tables, [clusters.NAME] and"
            ' [flows.NAME], and texts are in quotes; see "With your own clusters" in README.md'
        )
    found = _twice(text, str(error)) if str(error).startswith("Cannot ") and len(text) <= _LARGEST else None
    return f"not TOML: {found or printable(str(error))}"


def _is_of_mirrormaker(text: str) -> bool:
    lines = [line for line in (raw.strip() for raw in text.splitlines()) if line and not line.startswith(("#", "!"))]
    if not lines or any(line.startswith("[") for line in lines):
        return False
    return all(_PROPERTY.fullmatch(line) for line in lines) and _OF_MIRRORMAKER.search(text) is not None


def _twice(text: str, error: str) -> str | None:
    """The key, or table, of a statement that contradicts an earlier one; None where it is not found."""
    lines = text.splitlines()
    at = _LINE.search(error)
    last = min(int(at.group(1)), len(lines)) if at else len(lines)
    first = next((n for n in range(last - 1, max(-1, last - 1 - _MOST_LINES), -1) if _parses(lines[:n])), None)
    if first is None:
        return None
    if table := _TABLE.fullmatch(lines[first]):
        what, begin = f"the table [{_shown(table.group(1))}]", 0
    else:
        begin = next((n for n in range(first, 0, -1) if _TABLE.fullmatch(lines[n - 1])), 0)
        inside = _TABLE.fullmatch(lines[begin - 1]) if begin else None
        what = f"the key {_shown(_key(lines[first]))}{f' of [{_shown(inside.group(1))}]' if inside else ''}"
    where = next((n + 1 for n in range(begin, first) if _key(lines[n]) == _key(lines[first])), None)
    if where is None:
        return f"line {first + 1}: {what} contradicts what is before it"
    return f"line {first + 1}: {what} is there twice, first in line {where}; remove one"


def _parses(lines: list[str]) -> bool:
    try:
        tomllib.loads("\n".join(lines))
    except ValueError:
        return False
    return True


def _key(line: str) -> str:
    """What stands before a value, or the whole of a table's line."""
    return line.partition("=")[0].strip() if "=" in line else line.partition("#")[0].strip()


def _shown(key: str) -> str:
    text = printable(key.strip())
    return text if len(text) <= _LONGEST_KEY else text[:_LONGEST_KEY] + "..."
