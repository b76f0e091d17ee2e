"""The text of a configuration: TOML, in which each line names its origin in a comment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from mirror.config.key_names import KeyPath, dotted
from mirror.errors import printable
from mirror.migration.parsing.entries import Setting

Value: TypeAlias = str | int | bool | tuple[tuple[str, str], ...]
"""A list is one of texts, each with a comment, which may be empty."""


@dataclass(frozen=True, slots=True)
class Line:
    """A key with its value; without a value (None) the line is a comment that names the key."""

    key: str
    value: Value | None
    origin: Setting
    note: str = ""

    @property
    def comment(self) -> str:
        """What the line's comment says: the note, and the origin."""
        return "; ".join(part for part in (self.note, self.origin.origin) if part)


@dataclass(slots=True)
class Table:
    """A table with its lines."""

    path: KeyPath
    lines: list[Line] = field(default_factory=list)

    def add(self, key: str, value: Value | None, origin: Setting, note: str = "") -> None:
        """Append a line."""
        self.lines.append(Line(key, value, origin, note))


def render(head: Iterable[str], tables: Iterable[Table]) -> str:
    """Return the text of a file: ``head`` as comments, then the tables."""
    blocks = ["".join(f"# {line}\n" for line in head)]
    blocks += ["".join(f"{line}\n" for line in _table(table)) for table in tables]
    return "\n".join(blocks)


def _table(table: Table) -> Iterator[str]:
    yield f"[{dotted(table.path)}]"
    for line in table.lines:
        key, comment = dotted((line.key,)), f"  # {printable(line.comment)}"
        match line.value:
            case None:
                yield f"# {key} {printable(line.comment)}"
            case tuple():
                yield f"{key} = [{comment}"
                for text, why in line.value:
                    yield f"  {literal(text)},{f'  # {why}' if why else ''}"
                yield "]"
            case value:
                yield f"{key} = {literal(value)}{comment}"


def literal(value: str | int | bool) -> str:
    """Return a value as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
