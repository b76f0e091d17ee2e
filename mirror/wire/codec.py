"""Encode requests and decode responses with kio's schemas.

kio provides the schemas of every version, and readers and writers of primitive types. This module walks those schemas
itself, for three reasons: the ``records`` field must be passed as a view and not copied, error codes newer than kio
must be readable, and this project has one class per message, where kio has one per version.

A reader and a writer (``writing.py``) are built once per pair of our class and kio's class, and cached. Reading and
writing are then loops over their steps.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import Field, fields
from typing import Any, Final

from mirror.errors import ProtocolError
from mirror.wire.api import Api
from mirror.wire.frames import Buffer
from mirror.wire.kio_import import lean
from mirror.wire.messages.base import Message, Segment
from mirror.wire.messages.produce import ProduceRequest
from mirror.wire.produce_frames import ProduceFrames, decode_plain_response
from mirror.wire.schema_mapping import PLAIN, cached, check_covered, default, nested_classes
from mirror.wire.writing import FRAME_HEADER, NO_TAGS, Frame, write_legacy_string, writer_of

with lean():
    from kio.index import load_request_schema, load_response_schema
    from kio.serial._introspect import (
        EntityField,
        EntityTupleField,
        PrimitiveTupleField,
        classify_field,
        get_field_tag,
        get_schema_field_type,
        is_optional,
    )
    from kio.serial._parse import get_reader
    from kio.serial.errors import SerialError
    from kio.serial.readers import (
        read_compact_array_length,
        read_int32,
        read_legacy_array_length,
        read_unsigned_varint,
    )

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""(message, offset) -> (value, bytes read), the signature of kio's readers."""

_request_schema, _response_schema = cached(load_request_schema), cached(load_response_schema)

_MAX_TAGGED_FIELDS: Final = 100
"""The most tagged fields in one structure (KIP-482). Kafka's own schemas have fewer than ten."""


def encode_request(api: Api, version: int, correlation_id: int, client_id: str, body: Message) -> list[Segment]:
    """Return a request frame, preceded by its size, as segments to send in order.

    Raises ValueError, TypeError, AttributeError, struct.error or kio's SerialError if the message does not fit the
    schema, which is always an error of the caller.
    """
    segments = None
    if isinstance(body, ProduceRequest):
        segments = _produce_frames.request(version, correlation_id, client_id, body)
    return _encode_request(api, version, correlation_id, client_id, body) if segments is None else segments


def _encode_request(api: Api, version: int, correlation_id: int, client_id: str, body: Message) -> list[Segment]:
    schema = _request_schema(api.spec.key, version)
    header = schema.__header_schema__
    frame = Frame()
    frame.write(struct.pack(">hhi", api.spec.key, version, correlation_id))
    # The client id has the legacy string format in every header version (RequestHeader.json).
    write_legacy_string(frame, client_id)
    if header.__flexible__:
        frame.write(NO_TAGS)
    writer_of(type(body), schema)(frame, body)
    frame.flush()
    size = sum(map(len, frame.segments))
    return [FRAME_HEADER.pack(size), *frame.segments]


_produce_frames: Final = ProduceFrames(_encode_request)


def read_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response frame. Raises ProtocolError if the frame is too short."""
    try:
        return int(read_int32(memoryview(frame).toreadonly(), 0)[0])
    except SerialError as error:
        msg = f"a response of {len(frame)} bytes is too short for its header"
        raise ProtocolError(msg) from error


def peek_int16(frame: Buffer, offset: int) -> int:
    """Return the int16 at ``offset``. Raises ProtocolError if the frame is too short."""
    try:
        return int(struct.unpack_from(">h", frame, offset)[0])
    except struct.error as error:
        msg = f"a response of {len(frame)} bytes ends before byte {offset + 2}"
        raise ProtocolError(msg) from error


def decode_response(api: Api, version: int, frame: Buffer) -> Any:
    """Decode a response frame (without its size) into the response class of ``api``.

    ``records`` fields are writable views of ``frame``. Raises ProtocolError if the frame is malformed.
    """
    schema = _response_schema(api.spec.key, version)
    view = memoryview(frame).toreadonly()
    _budget.set(_Budget(api.spec.response.most_items))
    try:
        if api is Api.PRODUCE and (response := decode_plain_response(version, frame)) is not None:
            return response
        offset = 4
        if schema.__header_schema__.__flexible__:
            offset += _skip_tags(view, offset)
        body, _ = _reader(api.spec.response, schema)(view, offset)
    except (ProtocolError, SerialError, ValueError, OverflowError, struct.error) as error:
        msg = f"a {api.label} response (version {version}, {len(frame)} bytes) cannot be read: {error}"
        raise ProtocolError(msg) from error
    return body


def _skip_tags(view: memoryview, offset: int) -> int:
    return _read_tags(view, offset, {}, [])


def _end(view: memoryview, offset: int, size: int) -> int:
    if size < 0 or offset + size > len(view):
        msg = f"a length of {size} bytes at byte {offset} goes beyond the message's {len(view)}"
        raise ProtocolError(msg)
    return offset + size


# Invariant: A response that is larger, or has more items, than its request can have is refused before memory is
#   allocated for it.
# Test: tests/cluster/test_session_bounds.py::test_the_lists_of_a_response_are_bounded_together
# Test: tests/cluster/test_session_bounds.py::test_a_response_larger_than_its_kind_is_refused_by_its_size
class _Budget:
    """How many items the lists of a message may have in all. An item of six bytes takes sixty in memory."""

    __slots__ = ("left", "most")

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self.left = most


_budget: Final[ContextVar[_Budget]] = ContextVar("_budget")
"""Of the message that is being decoded; kio's readers have no parameter for it."""


# --- reading -----------------------------------------------------------------------------------------------------


@cached
def _reader(ours: Any, schema: Any) -> Reader:
    """Return a reader of the kio class ``schema`` into the Message class ``ours``. With None it skips the structure."""
    names = [f.name for f in fields(ours)] if ours is not None else []
    defaults = [default(f) for f in fields(ours)] if ours is not None else []
    nested = nested_classes(ours)
    steps: list[tuple[int, Reader]] = []
    tagged: dict[int, tuple[int, Reader]] = {}
    for schema_field in fields(schema):
        place = names.index(schema_field.name) if schema_field.name in names else -1
        tag = get_field_tag(schema_field)
        field_class = nested.get(schema_field.name)
        reader = _field_reader(schema_field, schema.__flexible__, field_class, tagged=tag is not None)
        if tag is None:
            steps.append((place, reader))
        elif place >= 0:
            tagged[int(tag)] = (place, reader)
    check_covered(ours, schema, names, defaults)
    flexible = bool(schema.__flexible__)

    def read(view: memoryview, start: int) -> tuple[Any, int]:
        values = defaults.copy()
        offset = start
        for place, reader in steps:
            value, size = reader(view, offset)
            offset += size
            if place >= 0:
                values[place] = value
        if flexible:
            no_tags = offset < len(view) and not view[offset]
            offset += 1 if no_tags else _read_tags(view, offset, tagged, values)
        return (None if ours is None else ours(*values)), offset - start

    return read


def _read_tags(view: memoryview, start: int, tagged: dict[int, tuple[int, Reader]], values: list[Any]) -> int:
    """Read the tagged fields at ``start`` and return their size. Those in ``tagged`` are stored in ``values``."""
    count, size = read_unsigned_varint(view, start)
    offset = start + size
    if count > _MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields at byte {start}, but at most {_MAX_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        tag, size = read_unsigned_varint(view, offset)
        offset += size
        length, size = read_unsigned_varint(view, offset)
        offset += size
        end = _end(view, offset, length)
        if tag in tagged:
            place, reader = tagged[tag]
            values[place], _ = reader(view, offset)
        offset = end
    return offset - start


def _field_reader(field: Field[Any], flexible: bool, ours: type[Message] | None, *, tagged: bool) -> Reader:
    optional = is_optional(field) and not tagged
    kind = classify_field(field)
    if isinstance(kind, EntityTupleField):
        return _array_reader(_reader(ours, kind.type_), flexible, is_optional(field))
    if isinstance(kind, EntityField):
        if optional:
            msg = f"nullable structs (KIP-893) are not read yet: {field.name}"
            raise NotImplementedError(msg)
        return _reader(ours, kind.type_)
    wire_type = get_schema_field_type(field)
    if wire_type == "records":
        return _compact_records if flexible else _legacy_records
    if isinstance(kind, PrimitiveTupleField):
        item = get_reader(PLAIN.get(wire_type, wire_type), flexible, False)
        # kio's array readers allocate memory for the count unchecked: a false count would abort the process.
        return _array_reader(typing.cast("Reader", item), flexible, is_optional(field))
    plain = PLAIN.get(wire_type)
    return typing.cast("Reader", get_reader(plain or wire_type, flexible, optional and plain is None))


def _array_reader(item: Reader, flexible: bool, nullable: bool) -> Reader:
    read_length = read_compact_array_length if flexible else read_legacy_array_length

    def read(view: memoryview, start: int) -> tuple[tuple[Any, ...] | None, int]:
        count, size = read_length(view, start)
        offset = start + size
        if (count is None or count == -1) and nullable:
            return None, size
        if count is None:
            raise ProtocolError(f"null at byte {start}, where a list is required")
        # Every item has at least one byte: a count larger than the rest of the message is refused before allocation.
        _end(view, offset, count)
        budget = _budget.get()
        budget.left -= count
        if budget.left < 0:
            most = f"the message's lists may have at most {budget.most} in all"
            raise ProtocolError(f"a list of {count} items at byte {start}, but {most}")
        items = []
        for _ in range(count):
            value, size = item(view, offset)
            offset += size
            items.append(value)
        return tuple(items), offset - start

    return read


def _compact_records(view: memoryview, offset: int) -> tuple[memoryview | None, int]:
    length, size = read_unsigned_varint(view, offset)
    return _records(view, offset, size, length - 1)


def _legacy_records(view: memoryview, offset: int) -> tuple[memoryview | None, int]:
    length, size = read_int32(view, offset)
    return _records(view, offset, size, length)


# Invariant: The records of a response are views into its frame: a decoder neither copies nor changes a batch's payload.
# Test: tests/wire/test_codec.py::test_records_are_a_view_into_the_frame
def _records(view: memoryview, start: int, prefix: int, length: int) -> tuple[memoryview | None, int]:
    if length == -1:
        return None, prefix
    end = _end(view, start + prefix, length)
    # kio reads from a read-only view. The returned view is writable, because batch headers are patched in place.
    return memoryview(view.obj)[start + prefix : end], end - start
