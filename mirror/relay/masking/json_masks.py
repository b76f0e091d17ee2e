"""Masks places of a JSON text; everything else of the text stays as it is, to the byte. Pure.

A text is read once, from its beginning to its end, so that a name which appears twice is masked twice. What no mask is
about is passed over by the scanner of Python's json, which is compiled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Never

from mirror.relay.masking.actions import Action, Kind, Pseudonyms
from mirror.relay.masking.places import Steps, path_text

_SPACE: Final = re.compile(r"[ \t\n\r]*").match
_MEMBER: Final = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
"""A name without escapes, and its colon."""
_COLON: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*").match
_NEXT: Final = re.compile(r"[ \t\n\r]*([,\]}])[ \t\n\r]*").match
_S: Final = r"[ \t\n\r]*+"
_TEXT: Final = r'"[^"\\\x00-\x1f]*+"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_KEEP: Final = Action(Kind.KEEP)


class NotMasked(Exception):
    """A text that cannot be masked. The text of the error has nothing of it."""


@dataclass(slots=True)
class _Node:
    """What is done to the values at one place."""

    action: Action
    steps: Steps
    """The place, for messages."""
    named: Mapping[str, _Node]
    rest: _Node | None
    """Of members that are not ``named``, and of elements; None: they are kept."""
    leads_on: bool
    """Whether a path leads into the values: they must be objects or arrays, unless there is an action for them."""
    kept: Callable[[str, int], re.Match[str] | None] | None = None
    """Matches the next members that are kept, as far as they are simple; None: there may be none."""


Rule = tuple[Steps, Action]
"""A mask of JSON: a path, and what is done there."""


def mask_of(rules: Sequence[Rule], pseudonyms: Pseudonyms) -> Callable[[str], str]:
    """Return what masks a JSON text by ``rules``; it raises :class:`NotMasked`.

    Where several paths lead to a value, the longest counts; among those of one length, the one that has a name in place
    of ``[*]`` first. A path that ends earlier counts for whatever is inside, as far as no longer one does.
    """
    root = _node([(steps, steps, action) for steps, action in rules], (), _KEEP)
    return lambda text: _Pass(text, pseudonyms).run(root)


def _node(rules: Sequence[tuple[Steps, Steps, Action]], here: Steps, inherited: Action) -> _Node:
    """Return the node at ``here``; ``rules`` are those that lead there, each with its steps from there on, and all."""
    ending = [(whole, action) for rest, whole, action in rules if not rest]
    action = max(ending, key=lambda one: [step is not None for step in one[0]])[1] if ending else inherited
    leading = [rule for rule in rules if rule[0]]

    def child(name: str | None) -> _Node:
        inside = [(rest[1:], whole, one) for rest, whole, one in leading if rest[0] in {name, None}]
        return _node(inside, (*here, name), action)

    names = {rest[0] for rest, _, _ in leading} - {None}
    has_rest = action.kind is not Kind.KEEP or any(rest[0] is None for rest, _, _ in leading)
    if leading:
        named = {name: child(name) for name in names if name is not None}
        rest = child(None) if has_rest else None
        return _Node(action, here, named, rest, leads_on=True, kept=_kept(named) if rest is None else None)
    leaf = _Node(action, here, {}, None, leads_on=False)
    if action.kind is Kind.HASH:
        leaf.rest = leaf  # each text and number inside
    return leaf


def _kept(named: Iterable[str]) -> Callable[[str, int], re.Match[str] | None]:
    """Return what matches members of any other names, without escapes and with plain values.

    That takes half of the CPU. Each quantifier is possessive, so that the time is linear.
    """
    others = rf'"(?!(?:{"|".join(map(re.escape, named))})"){_TEXT[1:]}'
    value = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
    return re.compile(rf"(?>{_S}{others}{_S}:{_S}{value}{_S},)*+").match


class _Pass:
    """One pass over a text."""

    def __init__(self, text: str, pseudonyms: Pseudonyms) -> None:
        self._text: Final = text
        self._pseudonyms: Final = pseudonyms
        self._parts: Final[list[str]] = []
        self._taken = 0  # up to here the text is in the parts, or replaced

    def run(self, root: _Node) -> str:
        """Return the masked text. Raises NotMasked."""
        text = self._text
        try:
            end = self._value(root, _SPACE(text).end())  # type: ignore[union-attr]  # it always matches
            if _SPACE(text, end).end() != len(text):  # type: ignore[union-attr]
                self._refuse_text(end)
        except RecursionError:
            raise NotMasked("it is nested too deeply") from None
        if not self._parts:
            return text
        self._parts.append(text[self._taken :])
        return "".join(self._parts)

    def _value(self, node: _Node, at: int) -> int:
        """Mask the value that begins at ``at``; return where it ends."""
        first = self._text[at : at + 1]
        kind = node.action.kind
        if node.leads_on or kind is Kind.HASH:
            if first == "{":
                return self._object(node, at)
            if first == "[":
                return self._array(node, at)
            if first == '"':
                return self._string(node, at)
        end = self._scan(at)
        if kind is Kind.KEEP:
            if node.leads_on and first != "n":
                self._refuse_kind(node, "a number or a truth value")
        elif first != "n":
            self._replace(at, end, self._instead(node.action, at, end))
        return end

    def _string(self, node: _Node, at: int) -> int:
        if node.action.kind is Kind.KEEP:
            self._refuse_kind(node, "a text")
        if node.action.kind is not Kind.HASH:
            end = self._scan(at)
            self._replace(at, end, self._instead(node.action, at, end))
            return end
        string, end = self._read_string(at)
        self._replace(at, end, f'"{self._pseudonyms.of_text(string.encode("utf-8", "surrogatepass"))}"')
        return end

    def _instead(self, action: Action, at: int, end: int) -> str:
        """Return what takes the place of a value that is no string, or whose content does not count."""
        if action.kind is Kind.CONSTANT:
            return action.text
        if action.kind is Kind.HASH and self._text[at] not in "tf":  # of a truth value it would say which
            return self._pseudonyms.of_number(self._text[at:end].encode())
        return "null"

    def _object(self, node: _Node, at: int) -> int:
        text, named, rest = self._text, node.named, node.rest
        at += 1
        if text[(end := _SPACE(text, at).end()) : end + 1] == "}":  # type: ignore[union-attr]
            return end + 1
        kept = node.kept
        while True:
            if kept is not None:
                at = kept(text, at).end()  # type: ignore[union-attr]
            if (member := _MEMBER(text, at)) is not None:
                name, at = member[1], member.end()
            else:
                name, at = self._member(at)
            child = named.get(name, rest)
            at = self._scan(at) if child is None else self._value(child, at)
            follows = _NEXT(text, at)
            if follows is None or follows[1] == "]":
                self._refuse_text(at)
            if follows[1] == "}":
                return follows.end(1)
            at = follows.end()

    def _array(self, node: _Node, at: int) -> int:
        text, element = self._text, node.rest
        if element is None:
            self._refuse_kind(node, "an array (write [*])")
        at = _SPACE(text, at + 1).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "]":
            return at + 1
        while True:
            at = self._value(element, at)
            follows = _NEXT(text, at)
            if follows is None or follows[1] == "}":
                self._refuse_text(at)
            if follows[1] == "]":
                return follows.end(1)
            at = follows.end()

    def _member(self, at: int) -> tuple[str, int]:
        """Read a name that has escapes, and its colon."""
        at = _SPACE(self._text, at).end()  # type: ignore[union-attr]
        if self._text[at : at + 1] != '"':
            self._refuse_text(at)
        name, end = self._read_string(at)
        colon = _COLON(self._text, end)
        if colon is None:
            self._refuse_text(end)
        return name, colon.end()

    def _read_string(self, at: int) -> tuple[str, int]:
        try:
            string, end = _read(self._text, at)
        except ValueError:
            self._refuse_text(at)
        return string, end

    def _scan(self, at: int) -> int:
        """Return where the value ends that begins at ``at``."""
        try:
            return _read(self._text, at)[1]
        except ValueError:
            self._refuse_text(at)

    def _replace(self, at: int, end: int, by: str) -> None:
        self._parts.append(self._text[self._taken : at])
        self._parts.append(by)
        self._taken = end

    def _refuse_text(self, at: int) -> Never:
        raise NotMasked(f"it is not JSON (at character {at})") from None

    def _refuse_kind(self, node: _Node, found: str) -> Never:
        raise NotMasked(f"{path_text(node.steps)} is {found}, and a path of the masks leads on from there")


def _no_constant(name: str) -> Never:
    raise ValueError(name)


_read: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder(
    parse_int=float,  # int has a limit of 4,300 digits
    parse_constant=_no_constant,
).raw_decode
"""Reads one value. Python's own extensions, NaN and Infinity, are refused."""
