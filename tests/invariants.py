"""What must hold, as comments beside the code that keeps it; ``mirror/design/invariants.md`` is made of them.

    python -m tests.invariants     # writes it again

An invariant is one sentence, above the class, the function or the line that keeps it, and names the tests that fail
without it. A continued line begins with three spaces; a path that is too long is broken behind its last ``/``:

    # Invariant: Decompression ends at its limit.
    # Test: tests/wire/test_bombs.py::test_a_bomb_costs_no_more_memory_than_its_limit
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "mirror" / "design" / "invariants.md"
_PACKAGES_OF_ROOMS: Final = frozenset({"relay"})
"""Packages so large that each of their packages is a room."""
_LINE: Final = re.compile(r" *# (?:(Invariant|Test): |  +)(\S.*)")
_CITED: Final = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_HEAD: Final = """# Invariants

What must hold, room by room, with the file that keeps it and the tests that fail without it. The comments in these
files are the source of this page: `python -m tests.invariants` writes it again.
"""
_SUGGESTIONS: Final = 2


@dataclass(frozen=True, slots=True)
class Invariant:
    """One sentence of the code about what must hold."""

    file: str
    """Relative to the project's folder."""
    line: int
    text: str
    tests: tuple[str, ...]
    """As for pytest: the file, and a function or a class of it."""

    @property
    def room(self) -> str:
        parts = self.file.split("/")[1:-1]
        return "/".join(parts[: 1 + (parts[0] in _PACKAGES_OF_ROOMS)]) if parts else "mirror"


def invariants(root: Path = ROOT) -> list[Invariant]:
    """Return the invariants of the code under ``root``, by room, file and line."""
    files = [file for file in (root / "mirror").rglob("*.py") if "# Invariant: " in file.read_text("utf-8")]
    found = [one for file in files for one in _of(file.relative_to(root).as_posix(), file.read_text("utf-8"))]
    return sorted(found, key=lambda one: (one.room, one.file, one.line))


def _of(file: str, text: str) -> Iterator[Invariant]:
    parts: list[list[str]] = []
    began = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = _LINE.fullmatch(line)
        if parts and (match is None or match[1] == "Invariant"):
            (_, *sentence), *tests = parts
            yield Invariant(file, began, " ".join(sentence), tuple("".join(path) for _, *path in tests))
            parts = []
        if match is None:
            continue
        if match[1] == "Invariant":
            parts, began = [[*match.groups()]], number
        elif parts and match[1]:
            parts.append([*match.groups()])
        elif parts:
            parts[-1].append(match[2])


def page(found: list[Invariant]) -> str:
    """Return the text of the page that lists ``found``."""
    rooms = [f"\n## {room}\n\n{''.join(map(_entry, those))}" for room, those in groupby(found, lambda one: one.room)]
    return _HEAD + "".join(rooms)


def _entry(one: Invariant) -> str:
    tests = ", ".join(f"[{test.rpartition('/')[2]}](../../{test.partition('::')[0]})" for test in one.tests)
    file = one.file.removeprefix("mirror/")
    return f"- {one.text}\n  [{file}](../{file}); {tests}\n"


def faults(found: list[Invariant], root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each invariant without a test, and for each of its tests that does not exist."""
    for one in found:
        if not one.tests:
            yield f"{one.file}:{one.line}: the invariant names no test"
        for test in one.tests:
            if why := _why_missing(test, root):
                yield f"{one.file}:{one.line}: {test} {why}"


def _why_missing(test: str, root: Path) -> str | None:
    match = _CITED.fullmatch(test)
    if match is None:
        return "is no path of a test"
    file = root / match[1]
    names = _names(file) if file.is_file() else []
    if match[2] in names:
        return None
    others = names or [path.relative_to(root).as_posix() for path in root.glob("tests/**/test_*.py")]
    near = difflib.get_close_matches(match[2] if names else match[1], others, n=_SUGGESTIONS)
    return "does not exist" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _names(file: Path) -> list[str]:
    """Return the names of the tests in ``file``: functions, methods, and classes, also those that Hypothesis made."""
    return re.findall(
        r"^ *(?:(?:async )?def (?=test_)|class (?=Test)|(?=Test\w+ *[:=]))(\w+)", file.read_text("utf-8"), re.MULTILINE
    )


if __name__ == "__main__":
    PAGE.write_text(page(invariants()), "utf-8")
