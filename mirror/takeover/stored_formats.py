"""Says in which format a topic has positions that Kafka Connect 3.0 and later does not write. Pure.

These write plain JSON whatever converters are configured (``internal.key.converter`` was removed). Earlier workers may
have written their positions by other converters; read as if they were none, the flow would begin elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from mirror.errors import printable
from mirror.mirrormaker.source_offsets import SourceOffsetKey
from mirror.wire.decode import Record

_SHOWN_BYTES: Final = 100
_ENVELOPE: Final = frozenset({"schema", "payload"})
_JAVA_TEXT: Final = re.compile(rb"\[.*\{.*=.*\}\]|\{.*=.*\}", re.DOTALL)
"""What Java's lists and maps are as texts: ``[name, {cluster=A, partition=0, topic=t}]``."""
ADVICE: Final = (
    "Kafka Connect before 3.0 writes that (internal.key.converter, internal.value.converter), and later releases"
    " neither read nor write it; write the positions as plain JSON into another topic, and name it with --offsets-topic"
)


def format_of(data: bytes) -> str:
    """Return which converter has written ``data``, as far as that can be seen; empty for plain JSON."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return "text of StringConverter" if _JAVA_TEXT.fullmatch(data) else "no JSON"
    is_envelope = isinstance(parsed, dict) and parsed.keys() == _ENVELOPE
    return "JSON with schemas (JsonConverter with schemas.enable)" if is_envelope else ""


def foreign_keys(records: Iterable[Record], source: str) -> str:
    """Return what was found of keys that name ``source`` and are no plain JSON, as a part of a sentence, or nothing."""
    alias = source.encode()
    found = {
        record.key: text
        for record in records
        if record.key is not None and alias in record.key and (text := format_of(record.key))
    }
    if not found:
        return ""
    data, text = next(iter(found.items()))
    return f"{len(found)} keys that are no plain JSON, such as {_shown(data)}: {text}"


def foreign_value(records: Iterable[Record], source: str) -> str:
    """Return what was found of a position of ``source`` whose value is no plain JSON, as a part of a sentence."""
    for record in records:
        key = SourceOffsetKey.parse(record.key)
        if key is not None and key.cluster == source and record.value and (text := format_of(record.value)):
            return f"a position of {key.tp} whose value is no plain JSON, {_shown(record.value)}: {text}"
    return ""


def _shown(data: bytes) -> str:
    text = printable(data[:_SHOWN_BYTES].decode("utf-8", "replace"))
    return text + "..." * (len(data) > _SHOWN_BYTES)
