"""OTLP as JSON lines, as OpenTelemetry's file exporter writes them: one ``TracesData`` or ``MetricsData`` per line.

The files replace a backend: people, ``jq`` and the collector's ``otlpjsonfile`` receiver can read them.
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
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""In bytes. A larger file is renamed to ``<name>.1`` and replaces the previous file of that name."""
_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})


def spans_line(spans: Sequence[ReadableSpan]) -> str:
    """Return ``spans`` as one line without a line break."""
    return _line(encode_spans(spans))


def metrics_line(data: MetricsData) -> str:
    """Return ``data`` as one line without a line break."""
    return _line(encode_metrics(data))


def _line(message: Message) -> str:
    # OTLP/JSON differs from protobuf's own JSON: enums are numbers, ids are hexadecimal.
    return json.dumps(_with_hex_ids(MessageToDict(message, use_integers_for_enums=True)), separators=(",", ":"))


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: base64.b64decode(item).hex() if name in _IDS else _with_hex_ids(item) for name, item in value.items()}


def append(path: Path, line: str) -> None:
    """Append ``line`` to the file. Raises OSError."""
    if path.exists() and path.stat().st_size > MAX_FILE_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
