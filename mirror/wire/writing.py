"""Writes messages by kio's schemas: the half of the codec that requests need. Adjacent fixed sizes are one step."""

from __future__ import annotations

import itertools
import struct
import typing
from collections.abc import Callable
from dataclasses import Field, fields
from operator import attrgetter
from typing import Any, Final

from mirror.wire.frames import varint
from mirror.wire.integers import INT16_MAX
from mirror.wire.kio_import import lean
from mirror.wire.messages.base import Message, Records, Segment
from mirror.wire.schema_mapping import PLAIN, cached, default, fixed_format, nested_classes, schema_default

with lean():
    from kio.serial._introspect import (
        EntityField,
        EntityTupleField,
        PrimitiveTupleField,
        classify_field,
        get_field_tag,
        get_schema_field_type,
        is_optional,
    )
    from kio.serial._serialize import get_writer

Writer = Callable[["Frame", Any], None]

FRAME_HEADER: Final = struct.Struct(">i")
NO_TAGS: Final = b"\0"
_LEGACY_LENGTH: Final = struct.Struct(">h")


class Frame:
    """Collects the bytes of a request. Payloads stay segments of their own, so that they are sent without a copy."""

    __slots__ = ("_head", "segments")

    def __init__(self) -> None:
        self._head = bytearray()
        self.segments: list[Segment] = []

    def write(self, data: bytes) -> None:
        """Append a few bytes. This is the method of kio's ``Writable``."""
        self._head += data

    def payload(self, data: Segment) -> None:
        """Append ``data`` as a separate segment."""
        self.flush()
        self.segments.append(data)

    def flush(self) -> None:
        """End the current segment of small writes."""
        if self._head:
            self.segments.append(bytes(self._head))
            self._head = bytearray()


@cached
def writer_of(ours: Any, schema: Any) -> Writer:
    """Return a writer of instances of the Message class ``ours`` as the kio class ``schema``."""
    names = {f.name for f in fields(ours)}
    nested = nested_classes(ours)
    tagged = [
        (int(tag), field.name, default(field), _field_writer(field, schema.__flexible__, nested.get(field.name)))
        for field in fields(schema)
        if (tag := get_field_tag(field)) is not None and field.name in names
    ]
    tagged.sort(key=lambda step: step[0])
    steps: list[Writer] = []
    plain = (field for field in fields(schema) if get_field_tag(field) is None)
    for is_fixed, some in itertools.groupby(plain, key=lambda field: fixed_format(field) is not None):
        if is_fixed:
            steps.append(_run_writer(list(some), names, ours))
        else:
            steps += [
                _step(_getter([field], names, ours), _field_writer(field, schema.__flexible__, nested.get(field.name)))
                for field in some
            ]
    if tagged:
        steps.append(lambda frame, message: _write_tags(frame, message, tagged))
    elif schema.__flexible__:
        steps.append(lambda frame, _: frame.write(NO_TAGS))

    def write(frame: Frame, message: Any) -> None:
        for step in steps:
            step(frame, message)

    return write


def _getter(some: list[Field[Any]], names: set[str], ours: Any) -> Callable[[Any], Any]:
    """Return what gets the values of fields from a message: of several a tuple, and the default of what it lacks."""
    if all(field.name in names for field in some):
        return attrgetter(*(field.name for field in some))
    values = [None if field.name in names else schema_default(field, ours) for field in some]

    def get(message: Any) -> Any:
        found = [
            getattr(message, field.name) if field.name in names else value
            for field, value in zip(some, values, strict=True)
        ]
        return found[0] if len(found) == 1 else found

    return get


def _step(get: Callable[[Any], Any], writer: Writer) -> Writer:
    return lambda frame, message: writer(frame, get(message))


def _run_writer(some: list[Field[Any]], names: set[str], ours: Any) -> Writer:
    """Return what writes adjacent fields of fixed size."""
    pack = struct.Struct(">" + "".join(fixed_format(field) or "" for field in some)).pack
    get = _getter(some, names, ours)
    if len(some) == 1:
        return lambda frame, message: frame.write(pack(get(message)))
    return lambda frame, message: frame.write(pack(*get(message)))


def _write_tags(frame: Frame, message: Any, tagged: list[tuple[int, str, Any, Writer]]) -> None:
    present = [step for step in tagged if getattr(message, step[1]) != step[2]]
    frame.write(varint(len(present)))
    for tag, name, _, writer in present:
        value = Frame()
        writer(value, getattr(message, name))
        value.flush()
        frame.write(varint(tag))
        frame.write(varint(sum(map(len, value.segments))))
        for segment in value.segments:
            frame.write(bytes(segment))


def _field_writer(field: Field[Any], flexible: bool, ours: type[Message] | None) -> Writer:
    optional = is_optional(field) and get_field_tag(field) is None
    kind = classify_field(field)
    if isinstance(kind, EntityTupleField):
        # A field declared as plain Message is always sent empty by this client.
        item = _unsupported_item if ours in {None, Message} else writer_of(ours, kind.type_)
        return _array_writer(item, flexible)
    if isinstance(kind, EntityField):
        if ours is None:
            msg = f"the struct {field.name} has no message class"
            raise NotImplementedError(msg)
        return writer_of(ours, kind.type_)
    wire_type = get_schema_field_type(field)
    if wire_type == "records":
        return _write_records if flexible else _write_legacy_records
    if isinstance(kind, PrimitiveTupleField):
        return _array_writer(_primitive_writer(wire_type, flexible, optional=False), flexible)
    return _primitive_writer(wire_type, flexible, optional=optional)


def _primitive_writer(wire_type: str, flexible: bool, *, optional: bool) -> Writer:
    """Return our own writer of strings, which kio checks by types of its own, and kio's of all else."""
    if wire_type == "string":
        write = _write_compact_string if flexible else write_legacy_string
        return write if optional else _required(write)
    plain = PLAIN.get(wire_type)
    return typing.cast("Writer", get_writer(plain or wire_type, flexible, optional and plain is None))


def _required(write: Writer) -> Writer:
    def write_required(frame: Frame, value: Any) -> None:
        if value is None:
            msg = "null, where a string is required"
            raise TypeError(msg)
        write(frame, value)

    return write_required


def _write_compact_string(frame: Frame, value: str | None) -> None:
    if value is None:
        frame.write(b"\0")
        return
    data = str.encode(value)
    frame.write(varint(len(data) + 1) + data)


def write_legacy_string(frame: Frame, value: str | None) -> None:
    """Write a string with an int16 as its length, or null. Raises ValueError if it is too long."""
    data = b"" if value is None else str.encode(value)
    if len(data) > INT16_MAX:
        msg = f"a string has {len(data)} bytes, more than {INT16_MAX}"
        raise ValueError(msg)
    frame.write(_LEGACY_LENGTH.pack(-1 if value is None else len(data)) + data)


def _array_writer(item: Writer, flexible: bool) -> Writer:
    def write(frame: Frame, values: tuple[Any, ...] | None) -> None:
        if flexible:
            frame.write(varint(0 if values is None else len(values) + 1))
        else:
            frame.write(FRAME_HEADER.pack(-1 if values is None else len(values)))
        for value in values or ():
            item(frame, value)

    return write


def _unsupported_item(_frame: Frame, value: Any) -> None:
    msg = f"no message class describes {value!r}"
    raise NotImplementedError(msg)


def _write_records(frame: Frame, records: Records) -> None:
    frame.write(varint(len(records) + 1))
    for segment in records.segments:
        frame.payload(segment)


def _write_legacy_records(frame: Frame, records: Records) -> None:
    frame.write(FRAME_HEADER.pack(len(records)))
    for segment in records.segments:
        frame.payload(segment)
