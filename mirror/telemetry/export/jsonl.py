"""OTLP as JSON lines, as OpenTelemetry's file exporter writes them: one ``TracesData`` or ``MetricsData`` a line.

For who has no backend: the files can be read by people, by ``jq``, and by the collector's ``otlpjsonfile`` receiver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

TRACES: Final = "traces.jsonl"
METRICS: Final = "metrics.jsonl"
LARGEST: Final = 64 * 1024 * 1024
"""A file that has become so large is moved to ``<name>.1``, in place of the one before."""
_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})


def spans_line(spans: Sequence[ReadableSpan]) -> str:
    """One line, without its end."""
    return _line(encode_spans(spans))


def metrics_line(data: MetricsData) -> str:
    """One line, without its end."""
    return _line(encode_metrics(data))


def _line(message: Message) -> str:
    # Enums as numbers and ids in hex is how OTLP/JSON differs from protobuf's own JSON.
    return json.dumps(_with_hex_ids(MessageToDict(message, use_integers_for_enums=True)), separators=(",", ":"))


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: base64.b64decode(one).hex() if name in _IDS else _with_hex_ids(one) for name, one in value.items()}


def append(path: Path, line: str) -> None:
    """At the end of the file. Raises OSError."""
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
