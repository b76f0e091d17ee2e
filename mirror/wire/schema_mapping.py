"""Which of our message classes, and which of their fields, go with which of kio's."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from mirror.wire.messages.base import Message

F = typing.TypeVar("F", bound=Callable[..., Any])

# functools.cache asks for Hashable arguments, which mypy does not see in classes.
kept = typing.cast("Callable[[F], F]", functools.cache)


def nested_classes(ours: Any) -> dict[str, type[Message]]:
    """Field name -> the message class in its annotation (``X``, ``X | None``, ``tuple[X, ...]``)."""
    if ours is None:
        return {}
    found = {}
    for name, hint in typing.get_type_hints(ours).items():
        pending = [hint]
        while pending:
            one = pending.pop()
            if typing.get_origin(one) is None and isinstance(one, type) and issubclass(one, Message):
                found[name] = one
            else:
                pending.extend(typing.get_args(one))
    return found


def default(field: Field[Any]) -> Any:
    """The field's default; MISSING where it has none."""
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def schema_default(field: Field[Any], ours: Any) -> Any:
    """What kio's class says where ours has no such field. Raises TypeError where it says nothing."""
    value = default(field)
    if value is MISSING:
        msg = f"{ours.__name__} lacks {field.name}, which has no default"
        raise TypeError(msg)
    return value


def check_covered(ours: Any, schema: Any, names: list[str], defaults: list[Any]) -> None:
    """Every field of ours is in the schema or has a default: found when a plan is built, by a test of all versions."""
    present = {f.name for f in fields(schema)}
    missing = [n for n, d in zip(names, defaults, strict=True) if n not in present and d is MISSING]
    if missing:
        msg = f"{ours.__name__}: {schema.__module__} has no {', '.join(missing)}"
        raise TypeError(msg)
