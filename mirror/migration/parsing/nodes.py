"""Reads JSON and YAML into nodes that know their lines; YAML as Kubernetes reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import yaml

from mirror.migration.parsing.entries import shown
from mirror.migration.parsing.reading import check_text, refuse
from mirror.migration.parsing.templates import template

_MAX_NODES: Final = 20_000
_MAX_DEPTH: Final = 50
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Both only read: neither makes objects."""

_TAG: Final = "tag:yaml.org,2002:"
_RESOLVED_TAGS: Final = {f"{_TAG}{name}" for name in ("bool", "int", "float", "null")}
_MERGE: Final = "<<"
_NULLS: Final = {"", "~", "null", "Null", "NULL"}
_BOOLEANS: Final[Mapping[str, str]] = {
    form: value
    for value, words in (("true", "y yes true on"), ("false", "n no false off"))
    for word in words.split()
    for form in (word, word.capitalize(), word.upper())
}
"""The booleans of YAML 1.1: what ``go-yaml`` v2, by which ``kubectl`` reads YAML, takes for one without quotes."""
_INTEGER: Final = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES: Final = {"0x": 16, "0b": 2, "0o": 8}


@dataclass(frozen=True, slots=True)
class Node:
    """A text, a list or a mapping, in ``line`` (from 1); null has none of them."""

    line: int
    text: str | None = field(default=None, repr=False)
    """Of a boolean or a number, as Kubernetes and Kafka Connect write it."""
    items: tuple[Node, ...] = ()
    entries: Mapping[str, Node] = field(default_factory=dict)
    written: str | None = field(default=None, repr=False)
    """A boolean or a number as it stands in the file; None for a text."""
    is_block: bool = False
    """Whether each line of the text is a line of the file, from the one below ``line``."""
    replaced: tuple[tuple[str, Node], ...] = ()
    """The entries of a mapping that a later one of the same key, or a merged one below them, replaces."""

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
    is_json = text.lstrip().startswith(("{", "["))
    try:
        return _Builder(where, is_json=is_json).build(
            yaml.parse(_checked_json(text) if is_json else text, Loader=_Loader)
        )
    except json.JSONDecodeError as error:
        raise refuse(where, _of_template(text) or f"not JSON: line {error.lineno}: {error.msg}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise refuse(where, _of_template(text) or f"not YAML: {line}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise refuse(where, _of_template(text) or f"not YAML: {error}") from None
    except RecursionError:
        raise refuse(where, "nested too deeply") from None


def _checked_json(text: str) -> str:
    """Return JSON as YAML reads it: without tabs, which are blanks between its values."""
    json.loads(text, parse_int=str, parse_float=str)
    return text.replace("\t", " ")


def _of_template(text: str) -> str:
    """Return why a file that cannot be parsed is a template; an empty text if it is none."""
    found = next(
        ((number, mark) for number, line in enumerate(text.split("\n"), 1) if (mark := template(line)) is not None),
        None,
    )
    if found is None:
        return ""
    return f"line {found[0]}: a template with {found[1]}; render it (helm template, envsubst), and import the result"


def _resolved(event: yaml.ScalarEvent, *, is_json: bool) -> tuple[str | None, str | None]:
    """Return the text of a scalar, None for null; and its text in the file if it is a boolean or a number."""
    text = str(event.value)
    if not (event.implicit[0] or event.tag in _RESOLVED_TAGS):
        return text, None
    if text in _NULLS:
        return None, None
    if text in _BOOLEANS:
        return _BOOLEANS[text], text
    digits = text.replace("_", "")
    if number := _INTEGER.fullmatch(digits):
        return (text if is_json else str(_integer(number))), text
    return text, text if _FLOAT.fullmatch(digits) else None


def _integer(number: re.Match[str]) -> int:
    """Return a number as Go's ``strconv.ParseInt`` with base 0 reads it: a leading 0 means octal."""
    sign, digits = number.groups()
    base = _BASES.get(digits[:2].lower(), 8 if digits.startswith("0") else 10)
    return int(digits if base == 10 else digits.lower().removeprefix("0o"), base) * (-1 if sign == "-" else 1)  # noqa: PLR2004


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is not read yet."""

    line: int
    anchor: str | None
    is_mapping: bool
    nodes: list[Node] = field(default_factory=list)
    """Of a mapping, keys and values by turns."""
    merges: set[int] = field(default_factory=set)
    """The positions of merge keys in ``nodes``."""
    size: int = 1

    def close(self) -> Node:
        if not self.is_mapping:
            return Node(self.line, items=tuple(self.nodes))
        entries: dict[str, Node] = {}
        own: set[str] = set()
        replaced: list[tuple[str, Node]] = []
        for position in range(0, len(self.nodes), 2):
            added = dict(self._added(position))
            replaced += [(key, entries[key]) for key in added if key in own]
            own |= added.keys() if position not in self.merges else set()
            entries |= added
        return Node(self.line, entries=entries, replaced=tuple(replaced))

    def _added(self, position: int) -> Iterator[tuple[str, Node]]:
        """Yield what a key adds to the mapping, where a later key replaces an earlier one, merged or not.

        That is the order of ``go-yaml`` v2. Of a list of merged mappings the first one takes precedence.
        """
        key, value = self.nodes[position : position + 2]
        if position not in self.merges:
            yield key.text or "", replace(value, line=key.line)
            return
        merged: dict[str, Node] = {}
        for mapping in reversed(value.items or (value,)):
            merged |= mapping.entries
        yield from merged.items()


# Invariant: Any file ends in bounded time and depth: the events of the YAML parser are read one by one, because its own
#   composer recurses.
# Test: tests/cli/test_import.py::test_large_files_take_bounded_time
class _Builder:
    """Builds nodes of the parser's events: its own composer calls itself, which a deeply nested file would crash."""

    def __init__(self, where: str, *, is_json: bool) -> None:
        self._where = where
        self._is_json = is_json
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._documents: list[Node] = []

    def build(self, events: Iterable[yaml.Event]) -> list[Node]:
        """Return the documents. Raises ConfigError if there is too much, or an alias stands for what contains it."""
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 0
            match event:
                case yaml.ScalarEvent():
                    self._add_scalar(event, line)
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

    def _add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text, written = _resolved(event, is_json=self._is_json)
        outer = self._open[-1] if self._open else None
        if outer and outer.is_mapping and len(outer.nodes) % 2 == 0 and text == _MERGE and event.implicit[0]:
            outer.merges.add(len(outer.nodes))
        self._add(Node(line, text, written=written, is_block=event.style == "|"), event.anchor, 1)

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
        is_merged = len(outer.nodes) - 1 in outer.merges
        if is_merged and any(not one.entries and (one.text or one.items) for one in node.items or (node,)):
            raise refuse(self._where, f"line {node.line}: {_MERGE} merges a mapping, or a list of mappings")
        outer.nodes.append(node)
        outer.size += size
        if outer.size > _MAX_NODES:
            raise refuse(self._where, f"line {node.line}: more values than in any configuration")
