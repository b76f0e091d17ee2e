"""Reads JSON and YAML into nodes that know their lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import yaml

from mirror.migration.parsing.entries import shown
from mirror.migration.parsing.reading import check_text, refuse

_MAX_NODES: Final = 20_000
_MAX_DEPTH: Final = 50
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Both only read: neither makes objects."""


@dataclass(frozen=True, slots=True)
class Node:
    """A text, a list or a mapping, in ``line`` (from 1); null has none of them."""

    line: int
    text: str | None = field(default=None, repr=False)
    items: tuple[Node, ...] = ()
    entries: Mapping[str, Node] = field(default_factory=dict)

    def get(self, *path: str) -> Node:
        """Return the node at a path of keys; an empty one if there is none."""
        node = self
        for key in path:
            node = node.entries.get(key, Node(node.line))
        return node


def read_documents(data: bytes, where: str) -> list[Node]:
    """Return the documents of a JSON or YAML file. Raises ConfigError that names the file ``where``."""
    check_text(data, where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(where, f"not UTF-8 text, from byte {error.start} on") from None
    if text.lstrip().startswith(("{", "[")):
        text = _checked_json(text, where)
    try:
        return _Builder(where).build(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise refuse(where, f"not YAML: {line}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise refuse(where, f"not YAML: {error}") from None
    except RecursionError:
        raise refuse(where, "nested too deeply") from None


def _checked_json(text: str, where: str) -> str:
    """Return JSON as YAML reads it: without tabs, which are blanks between its values."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise refuse(where, f"not JSON: line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise refuse(where, "nested too deeply") from None
    return text.replace("\t", " ")


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is not read yet."""

    line: int
    anchor: str | None
    is_mapping: bool
    nodes: list[Node] = field(default_factory=list)
    """Of a mapping, keys and values by turns."""
    size: int = 1

    def close(self) -> Node:
        if not self.is_mapping:
            return Node(self.line, items=tuple(self.nodes))
        pairs = zip(self.nodes[::2], self.nodes[1::2], strict=True)
        return Node(self.line, entries={key.text or "": replace(value, line=key.line) for key, value in pairs})


class _Builder:
    """Builds nodes of the parser's events: its own composer calls itself, which a deeply nested file would crash."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._documents: list[Node] = []

    def build(self, events: Iterable[yaml.Event]) -> list[Node]:
        """Return the documents. Raises ConfigError if there is too much, or an alias stands for what contains it."""
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 0
            match event:
                case yaml.ScalarEvent():
                    is_null = event.implicit[0] and event.value in {"", "~", "null", "Null", "NULL"}
                    self._add(Node(line, None if is_null else str(event.value)), event.anchor, 1)
                case yaml.AliasEvent():
                    node, size = self._aliased(str(event.anchor), line)
                    self._add(replace(node, line=line), None, size)
                case yaml.CollectionStartEvent():
                    self._open.append(_Open(line, event.anchor, isinstance(event, yaml.MappingStartEvent)))
                    if len(self._open) > _MAX_DEPTH:
                        raise refuse(self._where, f"line {line}: nested too deeply")
                case yaml.CollectionEndEvent():
                    done = self._open.pop()
                    self._add(done.close(), done.anchor, done.size)
        return self._documents

    def _aliased(self, anchor: str, line: int) -> tuple[Node, int]:
        if any(outer.anchor == anchor for outer in self._open):
            raise refuse(self._where, f"line {line}: the alias {shown('', anchor)} stands for what contains it")
        if anchor not in self._anchors:
            raise refuse(self._where, f"line {line}: the alias {shown('', anchor)} stands for nothing")
        return self._anchors[anchor]

    def _add(self, node: Node, anchor: str | None, size: int) -> None:
        if anchor:
            self._anchors[anchor] = (node, size)
        if not self._open:
            self._documents.append(node)
            return
        outer = self._open[-1]
        outer.nodes.append(node)
        outer.size += size
        if outer.size > _MAX_NODES:
            raise refuse(self._where, f"line {node.line}: more values than in any configuration")
