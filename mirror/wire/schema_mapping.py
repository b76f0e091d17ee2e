"""Map our message classes and their fields to kio's."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from mirror.wire.kio_import import lean
from mirror.wire.messages.base import Message

with lean():
    from kio.serial._introspect import PrimitiveField, classify_field, get_field_tag, get_schema_field_type

PLAIN: Final = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "error_code": "int16"}
"""Types that kio converts to objects. Here they stay the numbers (ms, codes) that they are on the wire."""

_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
}

F = typing.TypeVar("F", bound=Callable[..., Any])

# functools.cache requires Hashable arguments, and mypy does not treat classes as Hashable.
cached = typing.cast("Callable[[F], F]", functools.cache)


def nested_classes(ours: Any) -> dict[str, type[Message]]:
    """Return the message class in each field's annotation (``X``, ``X | None``, ``tuple[X, ...]``), by field name."""
    if ours is None:
        return {}
    classes = {}
    for name, hint in typing.get_type_hints(ours).items():
        pending = [hint]
        while pending:
            annotation = pending.pop()
            if (
                typing.get_origin(annotation) is None
                and isinstance(annotation, type)
                and issubclass(annotation, Message)
            ):
                classes[name] = annotation
            else:
                pending.extend(typing.get_args(annotation))
    return classes


def default(field: Field[Any]) -> Any:
    """Return the field's default, or MISSING."""
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def schema_default(field: Field[Any], ours: Any) -> Any:
    """Return the default of a field that ``ours`` does not have. Raises TypeError if it has no default."""
    value = default(field)
    if value is MISSING:
        msg = f"{ours.__name__} lacks {field.name}, which has no default"
        raise TypeError(msg)
    return value


def check_covered(ours: Any, schema: Any, names: list[str], defaults: list[Any]) -> None:
    """Check that every field of ``ours`` is in the schema or has a default. Raises TypeError.

    The check runs when a codec plan is built; a test builds the plans of all versions.
    """
    present = {f.name for f in fields(schema)}
    missing = [n for n, d in zip(names, defaults, strict=True) if n not in present and d is MISSING]
    if missing:
        msg = f"{ours.__name__}: {schema.__module__} has no {', '.join(missing)}"
        raise TypeError(msg)


def fixed_format(field: Field[Any]) -> str | None:
    """Return the code of the struct module for a field of fixed size; None for any other one, and for tagged ones."""
    if get_field_tag(field) is not None or not isinstance(classify_field(field), PrimitiveField):
        return None
    wire_type = get_schema_field_type(field)
    return _FORMATS.get(PLAIN.get(wire_type, wire_type))
