"""The broker's side of the wire: requests read and responses written by kio's own readers and writers.

On purpose not by ``mirror.wire.codec``: what one side wrote, another implementation has to read.
"""

from __future__ import annotations

import datetime as dt
import functools
import io
import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, PrimitiveTupleField, classify_field, get_field_tag

from mirror.wire.api import Api
from mirror.wire.messages.base import Message, Records
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse, FinalizedFeature
from mirror.wire.schema_mapping import cached, nested_classes

_request_schema = functools.cache(load_request_schema)
_response_schema = functools.cache(load_response_schema)
_MS = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_API_OF_KEY = {api.value.key: api for api in Api}
_ERROR_CODES = {int(code): code for code in ErrorCode}
_VERSIONS_OF = attrgetter(*(field.name for field in fields(ApiVersion)))
_LEVELS_OF = attrgetter(*(field.name for field in fields(FinalizedFeature)))
_api_versions: dict[tuple[object, ...], bytes] = {}
_ZEROES: dict[str, Any] = {"string": "", "bool": False, "uuid": None, "bytes": b"", "records": None}


def decode_request(frame: bytes) -> tuple[Api, int, int, Message]:
    """(API, version, correlation id, body) of a request frame without its size."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    api = _API_OF_KEY[key]
    schema = _request_schema(key, version)
    # kio reads the header's class from a whole frame, body included: it tells how far it got.
    _, size = entity_reader(schema.__header_schema__)(memoryview(frame), 0)
    entity, body_size = entity_reader(schema)(memoryview(frame), size)
    assert size + body_size == len(frame), f"{api.label} v{version}: {len(frame) - size - body_size} bytes left over"
    return api, version, correlation_id, to_message(api.value.request, entity)


def encode_response(api: Api, version: int, correlation_id: int, body: Message) -> bytes:
    """A whole response frame, its size in front."""
    frame = struct.pack(">i", correlation_id)
    if isinstance(body, ApiVersionsResponse):
        # Each connection begins with one: the tests' brokers would spend a third of their time to write what is alike.
        key = (version, body.error_code, *map(_VERSIONS_OF, body.api_keys), *map(_LEVELS_OF, body.finalized_features))
        key += (body.throttle_time, body.finalized_features_epoch)
        if key not in _api_versions:
            _api_versions[key] = _written(api, version, body)
        frame += _api_versions[key]
    else:
        frame += _written(api, version, body)
    return struct.pack(">i", len(frame)) + frame


def _written(api: Api, version: int, body: Message) -> bytes:
    """What is behind the correlation id."""
    schema = _response_schema(api.value.key, version)
    out = io.BytesIO(b"\0" if schema.__header_schema__.__flexible__ else b"")
    out.seek(0, io.SEEK_END)
    entity_writer(schema)(out, to_entity(schema, body))
    return out.getvalue()


def to_message(ours: type[Message], entity: Any) -> Any:
    """``entity`` of kio's as our class; fields that its version lacks get our default, else an empty value."""
    return ours(**{name: convert(entity) for name, convert in _message_plan(ours, type(entity))})


def to_entity(schema: type, message: Message) -> Any:
    """``message`` as the kio class ``schema``; fields that we lack get the schema's default, else an empty value."""
    return schema(**{name: convert(message) for name, convert in _entity_plan(type(message), schema)})


def schema_of(field: Field[Any]) -> type | None:
    """The kio class of a struct, or of an array's items."""
    kind = classify_field(field)
    return kind.type_ if isinstance(kind, EntityField | EntityTupleField) else None


def is_array(field: Field[Any]) -> bool:
    return isinstance(classify_field(field), EntityTupleField | PrimitiveTupleField)


def kafka_type(field: Field[Any]) -> str:
    return str(field.metadata.get("kafka_type", ""))


def has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


Convert = Callable[[Any], Any]


@cached
def _message_plan(ours: Any, schema: Any) -> list[tuple[str, Convert]]:
    present = {field.name: field for field in fields(schema)}
    nested = nested_classes(ours)
    plan: list[tuple[str, Convert]] = []
    for mine in fields(ours):
        theirs = present.get(mine.name)
        if theirs is not None:
            plan.append((mine.name, _from_kio(theirs, nested.get(mine.name), request="request" in schema.__module__)))
        elif not has_default(mine):
            plan.append((mine.name, functools.partial(_empty, mine)))
    return plan


def _empty(field: Field[Any], _entity: Any) -> Any:
    return "" if field.type == "str" else None


def _from_kio(field: Field[Any], ours: type[Message] | None, *, request: bool) -> Convert:
    name, kind = field.name, kafka_type(field)
    if schema_of(field) is not None:
        assert ours is not None
        if is_array(field):
            return lambda e: _each(getattr(e, name), lambda item: to_message(ours, item))
        default = field.default if get_field_tag(field) is not None else MISSING
        # A tagged struct that is not there reads as None on our side.
        return lambda e: None if getattr(e, name) == default else to_message(ours, getattr(e, name))
    read = functools.partial(_plain_from_kio, kind, request=request)
    if is_array(field):
        return lambda e: _each(getattr(e, name), read)
    return lambda e: read(getattr(e, name))


def _plain_from_kio(kind: str, value: Any, *, request: bool) -> Any:
    if kind == "error_code":
        return int(value)
    if kind.startswith("timedelta"):
        return value // _MS
    if kind.startswith("datetime"):
        return -1 if value is None else (value - _EPOCH) // _MS
    if kind == "records":
        if request:
            return Records.of((bytes(value or b""),))
        return None if value is None else memoryview(bytes(value))
    return value


@cached
def _entity_plan(ours: Any, schema: Any) -> list[tuple[str, Convert]]:
    known = {field.name for field in fields(ours)}
    plan: list[tuple[str, Convert]] = []
    for field in fields(schema):
        if field.name in known:
            plan.append((field.name, _to_kio(field)))
        elif not has_default(field):
            plan.append((field.name, functools.partial(_zero, field)))
    return plan


def _zero(field: Field[Any], _message: Any) -> Any:
    if is_array(field):
        return ()
    kind = kafka_type(field)
    if kind == "error_code":
        return ErrorCode.none
    if kind.startswith("timedelta"):
        return dt.timedelta(0)
    return _ZEROES.get(kind, 0)


def _to_kio(field: Field[Any]) -> Convert:
    name, kind, schema = field.name, kafka_type(field), schema_of(field)
    if schema is not None:
        if is_array(field):
            return lambda m: _each(getattr(m, name), lambda item: to_entity(schema, item))
        return lambda m: field.default if getattr(m, name) is None else to_entity(schema, getattr(m, name))
    if is_array(field):
        return lambda m: _each(getattr(m, name), functools.partial(_plain_to_kio, kind))
    return lambda m: _plain_to_kio(kind, getattr(m, name))


def _plain_to_kio(kind: str, value: Any) -> Any:
    if kind == "error_code":
        # A code that kio does not know yet is written as it is.
        return _ERROR_CODES[value] if value in _ERROR_CODES else SimpleNamespace(value=value)
    if kind.startswith("timedelta"):
        return value * _MS
    if kind.startswith("datetime"):
        # -1, which is no time, too: not every field of a time may be null.
        return None if value is None else _EPOCH + value * _MS
    if kind == "records":
        if isinstance(value, Records):
            return b"".join(bytes(segment) for segment in value.segments)
        return None if value is None else bytes(value)
    return value


def _each(items: Any, convert: Convert) -> Any:
    return None if items is None else tuple(convert(item) for item in items)
