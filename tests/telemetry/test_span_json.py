"""Spans in OTLP's JSON are those that OpenTelemetry's library and protobuf make."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from mirror.telemetry.export.jsonl import spans_line
from mirror.telemetry.export.otlp import as_span
from mirror.telemetry.traces.ids import SpanId
from mirror.telemetry.traces.spans import Kind, Span, SpanEvent, SpanLink

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_NAMES = _TEXT.filter(bool)
_VALUES = st.one_of(
    _TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
_ATTRIBUTES = st.dictionaries(_NAMES, _VALUES, max_size=5)
_TIMES = st.integers(1, 2**43)
_IDS = st.builds(SpanId, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
_SPANS = st.builds(
    Span,
    name=_NAMES,
    id=_IDS,
    parent=st.one_of(st.none(), _IDS),
    began_ms=_TIMES,
    ended_ms=_TIMES,
    attributes=_ATTRIBUTES,
    events=st.lists(st.builds(SpanEvent, _NAMES, _TIMES, _ATTRIBUTES), max_size=2).map(tuple),
    links=st.lists(st.builds(SpanLink, _IDS, _ATTRIBUTES), max_size=2).map(tuple),
    error=st.one_of(st.none(), _NAMES),
    kind=st.sampled_from(Kind),
)


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(item).hex() if name in {"traceId", "spanId", "parentSpanId"} else _with_hex_ids(item)
        for name, item in value.items()
    }


@given(spans=st.lists(_SPANS, min_size=1, max_size=3))
def test_a_line_is_what_the_library_makes(spans: list[Span]) -> None:
    message = encode_spans([as_span(span) for span in spans])
    assert json.loads(spans_line(spans)) == _with_hex_ids(MessageToDict(message, use_integers_for_enums=True))
