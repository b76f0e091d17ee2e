"""Records of a flow's topics: JSON objects that have the fields of a dataclass, each read by its type. Pure.

As in :mod:`.stored_json`, other programs may have written them: a record that is read has values to compute with and to
print, or is none.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mirror.errors import printable
from mirror.relay.progress import stored_json as stored

T = TypeVar("T")

MAX_TEXT: Final = 1_000
"""So many characters of each text are stored."""
_MAX_NUMBER: Final = 2**53 - 1
"""Far more than is ever copied, and the sums of what any program has stored still have 64 bits."""
_MAX_SECONDS: Final = 100 * 365 * 86_400
_WRONG: Final = object()
"""What is no value of the type."""

_Parse = Callable[[object], Any]


def plain(value: Any) -> Any:
    """Return ``value`` as JSON has it: of a dataclass the fields that differ from their defaults, of a text a part."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value):
        stored_fields = [(name, getattr(value, name), default) for name, default in _defaults(cast("Any", type(value)))]
        return {name: plain(one) for name, one, default in stored_fields if one != default}
    return {key: plain(one) for key, one in value.items()}


def record_of(kind: type[T], values: object, **known: Any) -> T | None:
    """Return the record of this ``kind`` (a dataclass) in ``values``, with the fields that are ``known`` already.

    A field whose value is missing, or not of its type, has its default. None: it has none, or there is no object.
    Integers and times are not negative; fields with a name in ``_ms`` are times that have a date.
    """
    if not isinstance(values, dict):
        return None
    parsers, required = _parsers(cast("Any", kind))
    found = dict(known)
    for name, value in values.items():
        parse = parsers.get(name)
        if parse is not None and name not in known and (one := parse(value)) is not _WRONG:
            found[name] = one
    return kind(**found) if required <= found.keys() else None


@functools.cache
def _defaults(kind: Any) -> list[tuple[str, Any]]:
    return [
        (one.name, one.default if one.default_factory is MISSING else one.default_factory()) for one in fields(kind)
    ]


@functools.cache
def _parsers(kind: Any) -> tuple[Mapping[str, _Parse], frozenset[str]]:
    """Return what reads each field, and the names of those without a default."""
    hints = get_type_hints(kind)
    parsers = {
        name: _time if hints[name] is int and name.endswith("_ms") else _parser(hints[name])
        for name, _ in _defaults(kind)
    }
    return parsers, frozenset(name for name, default in _defaults(kind) if default is MISSING)


def _parser(hint: Any) -> _Parse:
    """Return what reads a value of a type, and returns :data:`_WRONG` for another one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        (inner,) = (one for one in arguments if one is not type(None))
        return functools.partial(_optional, _parser(inner))
    if origin is not None and issubclass(origin, Mapping):
        return functools.partial(_mapping, _parser(arguments[1]))
    if origin in {list, tuple}:
        return functools.partial(_items, origin, _parser(arguments[0]))
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    return functools.partial(_member if issubclass(hint, Enum) else _nested, hint)


def _optional(parse: _Parse, value: object) -> Any:
    found = parse(value)
    return None if found is _WRONG else found


def _mapping(parse: _Parse, value: object) -> Any:
    if not isinstance(value, dict):
        return _WRONG
    found = {_text(key): parse(one) for key, one in value.items()}
    return {key: one for key, one in found.items() if one is not _WRONG}


def _items(kind: type, parse: _Parse, value: object) -> Any:
    if not isinstance(value, list):
        return _WRONG
    return kind(found for found in map(parse, value) if found is not _WRONG)


def _nested(kind: type[Any], value: object) -> Any:
    found = record_of(kind, value)
    return _WRONG if found is None else found


def _member(kind: type[Enum], value: object) -> Any:
    return next((one for one in kind if one.value == value), _WRONG)


def _number(value: object) -> Any:
    found = stored.number(value, _MAX_NUMBER)
    return _WRONG if found is None else found


def _time(value: object) -> Any:
    found = stored.time_ms(value)
    return _WRONG if found is None else found


def _seconds(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_SECONDS:
        return _WRONG  # such as NaN
    return float(value)


def _truth(value: object) -> Any:
    return value if isinstance(value, bool) else _WRONG


def _text(value: object) -> Any:
    """Return a text for people."""
    return printable(stored.text(value)) if isinstance(value, str) else _WRONG


def _any(value: object) -> Any:
    """Return a plain value of no known type."""
    if value is None or isinstance(value, bool):
        return value
    return _text(value) if isinstance(value, str) else _number(value)


_SIMPLE: Final[dict[Any, _Parse]] = {int: _number, float: _seconds, bool: _truth, str: _text, Any: _any}
