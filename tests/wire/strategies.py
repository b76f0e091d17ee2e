"""Random messages: kio's own entities, made from its schemas field by field."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.schema_mapping import cached, nested_classes
from tests.fakes.server_codec import is_array, kafka_type, schema_of

VERSIONS = [(api, version) for api in Api for version in range(api.value.low, api.value.high + 1)]
IDS = [f"{api.label}-v{version}" for api, version in VERSIONS]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def request_schema(api: Api, version: int) -> type:
    return load_request_schema(api.value.key, version)


def response_schema(api: Api, version: int) -> type:
    return load_response_schema(api.value.key, version)


@cached
def entities(schema: Any, ours: Any) -> st.SearchStrategy[Any]:
    """Instances of ``schema``; lists of structs that our class ``ours`` never fills stay empty."""
    nested = nested_classes(ours) if ours is not None else {}
    made: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields(schema):
        struct = schema_of(field)
        if struct is not None:
            one = entities(struct, nested.get(field.name))
            if nested.get(field.name) is Message:
                made[field.name] = st.just(())
            else:
                made[field.name] = _array(one) if is_array(field) else one
        elif is_array(field):
            made[field.name] = _array(_plain(kafka_type(field)))
        else:
            plain = _plain(kafka_type(field))
            nullable = "None" in str(field.type) and kafka_type(field) != "uuid" and "tag" not in field.metadata
            made[field.name] = st.none() | plain if nullable else plain
    return st.builds(schema, **made)


def _array(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3).map(tuple)


def _plain(kind: str) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - a table by kind
    if kind in _BITS:
        half = 2 ** (_BITS[kind] - 1)
        return st.integers(-half, half - 1)
    if kind == "float64":
        return st.floats(allow_nan=False)
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return st.text(max_size=12)
    if kind in {"records", "bytes"}:
        return st.binary(max_size=200)
    if kind == "uuid":
        return st.none() | st.uuids(version=4)
    if kind == "error_code":
        return st.sampled_from(ErrorCode)
    if kind.startswith("timedelta"):
        return st.integers(0, 2**31 - 1).map(lambda ms: dt.timedelta(milliseconds=ms))
    assert kind.startswith("datetime"), kind
    return st.integers(0, 2**42).map(lambda ms: _EPOCH + dt.timedelta(milliseconds=ms))
