"""OTLP as JSON lines, as OpenTelemetry's file exporter writes them: one ``TracesData`` or ``MetricsData`` per line.

The files replace a backend: people, ``jq`` and the collector's ``otlpjsonfile`` receiver can read them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from mirror.local_users import open_own
from mirror.telemetry.export.span_json import span_json

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from opentelemetry.sdk.metrics.export import MetricsData

    from mirror.telemetry.traces.spans import Span

TRACES: Final = "traces.jsonl"
METRICS: Final = "metrics.jsonl"
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""In bytes. A larger file is renamed to ``<name>.1`` and replaces the previous file of that name."""


def spans_line(spans: Sequence[Span]) -> str:
    """Return ``spans``, at least one, as one line without a line break."""
    from mirror.telemetry.export.otlp import as_span

    # The library makes what surrounds the spans: the resource and the scope.
    message = _to_json(encode_spans([as_span(spans[0])]))
    message["resourceSpans"][0]["scopeSpans"][0]["spans"] = [span_json(span) for span in spans]
    return _line(message)


def metrics_line(data: MetricsData) -> str:
    """Return ``data`` as one line without a line break."""
    return _line(_to_json(encode_metrics(data)))


def _to_json(message: Message) -> dict[str, Any]:
    return MessageToDict(message, use_integers_for_enums=True)  # OTLP's JSON has numbers for enums


def _line(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))


def append(path: Path, line: str) -> None:
    """Append ``line`` to the file. Raises OSError."""
    if path.exists() and path.stat().st_size > MAX_FILE_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "a", encoding="utf-8") as file:
        file.write(line + "\n")
