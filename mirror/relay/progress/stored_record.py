"""What a flow stores on its brokers: JSON objects that have the fields of a dataclass, each read by its type. Pure.

As in :mod:`.stored_json`, other programs may have written them: what is read has values to compute with and to print,
or is nothing.
"""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mirror.errors import printable
from mirror.relay.progress import stored_json as stored
from mirror.wire.integers import INT16_MAX, INT32_MAX, INT64_MAX

T = TypeVar("T")

MAX_TEXT: Final = 1_000
"""So many characters of each text are stored."""
Int16 = Annotated[int, INT16_MAX]
Int32 = Annotated[int, INT32_MAX]
Int64 = Annotated[int, INT64_MAX]
"""Types of fields that have to fit into a field of a request. Producer ids may have all 63 bits (kfake)."""
_VERSION: Final = 1
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_MAX_NUMBER: Final = 2**53 - 1
"""Of an ``int``: far more than is ever copied, and the sums of what any program has stored still have 64 bits."""
_MAX_SECONDS: Final = 100 * 365 * 86_400
_WRONG: Final = object()
"""What is no value of the type."""

_Parse = Callable[[object], Any]


def encode(value: Any, without: Collection[str] = ()) -> bytes:
    """Return a dataclass as a JSON object with the version of the format, but for the fields ``without``."""
    return encode_plain({name: one for name, one in plain(value).items() if name not in without})


def encode_plain(fields: Mapping[str, Any]) -> bytes:
    """Do the same with fields that are :func:`plain` already."""
    return _ENCODER.encode({"v": _VERSION, **fields}).encode("utf-8", "replace")


def decode(kind: type[T], data: str | bytes | None, **known: Any) -> T | None:
    """Return what :func:`encode` was given, as :func:`record_of` does; None for anything else. Never raises."""
    return record_of(kind, parse_plain(data), **known)


def parse_plain(data: str | bytes | None) -> dict[str, Any] | None:
    """Return the fields that :func:`encode_plain` was given; None for anything else."""
    values = stored.parse_object(data)
    return values if values.get("v") == _VERSION else None


def plain(value: Any) -> Any:
    """Return ``value`` as JSON has it: of a dataclass the fields that differ from their defaults, of a text a part."""
    kind: Any = type(value)
    return _writer(kind)(value)


@functools.cache
def _writer(kind: Any) -> Callable[[Any], Any]:
    """Return :func:`plain` for the values of one type: copies commit their progress thousands of times a second."""
    if issubclass(kind, str):
        return lambda text: text[:MAX_TEXT]
    if issubclass(kind, list | tuple):
        return lambda items: [plain(one) for one in items]
    if issubclass(kind, Mapping):
        return lambda mapping: {key: plain(one) for key, one in mapping.items()}
    if is_dataclass(kind):
        return functools.partial(_fields_of, _defaults(cast("Any", kind)))
    return sorted if issubclass(kind, frozenset) else lambda number: number


def _fields_of(defaults: Sequence[tuple[str, Any]], value: Any) -> dict[str, Any]:
    stored_fields = ((name, getattr(value, name), default) for name, default in defaults)
    return {name: plain(one) for name, one, default in stored_fields if one is not default and one != default}


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
    parsers = _by_field(kind)
    return parsers, frozenset(name for name, default in _defaults(kind) if default is MISSING)


def _by_field(kind: Any) -> dict[str, _Parse]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _time if hint is int and name.endswith("_ms") else _parser(hint) for name, hint in hints.items()}


def _parser(hint: Any) -> _Parse:
    """Return what reads a value of a type, and returns :data:`_WRONG` for another one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _SIMPLE[hint] if hint in _SIMPLE else _parser_of_class(hint)
    if origin is Annotated:
        return functools.partial(_number, maximum=arguments[1])
    if origin in {Union, types.UnionType}:
        (inner,) = (one for one in arguments if one is not type(None))
        return functools.partial(_optional, _parser(inner))
    if issubclass(origin, Mapping):
        return functools.partial(_mapping, _parser(arguments[1]))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return functools.partial(_array, tuple, [_parser(one) for one in arguments])
    return functools.partial(_items, origin, _parser(arguments[0]))


def _parser_of_class(kind: Any) -> _Parse:
    if issubclass(kind, tuple):  # a NamedTuple
        return functools.partial(_array, kind._make, list(_by_field(kind).values()))
    return functools.partial(_member if issubclass(kind, Enum) else _nested, kind)


def _optional(parse: _Parse, value: object) -> Any:
    return None if value is None else parse(value)


def _mapping(parse: _Parse, value: object) -> Any:
    if not isinstance(value, dict):
        return _WRONG
    found = {_text(key): parse(one) for key, one in value.items()}
    return {key: one for key, one in found.items() if one is not _WRONG}


def _items(kind: type, parse: _Parse, value: object) -> Any:
    if not isinstance(value, list):
        return _WRONG
    return kind(found for found in map(parse, value) if found is not _WRONG)


def _array(make: Callable[[list[Any]], Any], parsers: Sequence[_Parse], value: object) -> Any:
    if not isinstance(value, list) or len(value) != len(parsers):
        return _WRONG
    found = [parse(one) for parse, one in zip(parsers, value, strict=True)]
    return _WRONG if _WRONG in found else make(found)


def _nested(kind: type[Any], value: object) -> Any:
    found = record_of(kind, value)
    return _WRONG if found is None else found


def _member(kind: type[Enum], value: object) -> Any:
    return next((one for one in kind if one.value == value), _WRONG)


def _number(value: object, maximum: int = _MAX_NUMBER) -> Any:
    found = stored.number(value, maximum)
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
