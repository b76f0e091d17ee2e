"""The offsets that the Iceberg sink of Kafka Connect keeps in a table's snapshots. Pure.

They are no offsets of the sink's topics, which its group ``connect-NAME`` commits, but of its control topic: how far
the coordinator had read it when it committed the snapshot. A coordinator that starts leaves out what is in front of
them, so on a cluster where that topic begins again at 0 it would commit nothing, without an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mirror.errors import FlowError
from mirror.positions.places import Found, SourcePosition, check_exact
from mirror.positions.spark_log import Positions

PREFIX: Final = "kafka.connect.offsets."
_GROUP: Final = re.compile(r"(?P<topic>.+?)\.(?P<group>(?:connect|cg-control)-.+)")
"""The names that the sink gives its group, if it has no ``iceberg.connect.group-id``."""


class SinkOffsets(NamedTuple):
    """What a summary says of one sink."""

    topic: str
    """Its control topic."""
    group: str
    """The group of the sink, or what ``iceberg.connect.group-id`` is."""
    positions: Positions


def parse_snapshot(text: str, path: str, topic: str | None) -> list[SinkOffsets]:
    """Return the offsets in a file: the metadata of a table (``*.metadata.json``), or the summary of a snapshot.

    ``topic`` is the control topic, if its name cannot be seen. Raises FlowError with the ``path``.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise FlowError(f"{path} is no JSON, or truncated") from None
    if not isinstance(found, dict):
        raise FlowError(f"{path} is neither the metadata of a table nor the summary of a snapshot")
    summary = _last_summary(found, path) if "current-snapshot-id" in found else found
    properties = {name: value for name, value in summary.items() if name.startswith(PREFIX)}
    if not properties:
        raise FlowError(f"{path} has no property {PREFIX}CONTROL-TOPIC.GROUP: no sink has committed a snapshot")
    return [_offsets(name, value, path, topic) for name, value in sorted(properties.items())]


def _last_summary(metadata: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the newest properties of each sink in the ancestry of the table's present snapshot, as the sink does."""
    try:
        snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}
        number, found = metadata["current-snapshot-id"], dict[str, Any]()
        while (one := snapshots.pop(number, None)) is not None:
            found = {**one.get("summary", {}), **found}
            number = one.get("parent-snapshot-id")
    except (TypeError, KeyError, AttributeError):
        raise FlowError(f"{path} is no metadata of a table: its snapshots are damaged") from None
    return found


def _offsets(name: str, value: object, path: str, topic: str | None) -> SinkOffsets:
    both = name.removeprefix(PREFIX)
    if topic is not None and both.startswith(f"{topic}."):
        group = both.removeprefix(f"{topic}.")
    elif (match := _GROUP.fullmatch(both)) is not None:
        topic, group = match["topic"], match["group"]
    else:
        raise FlowError(f"{path}: {name} does not show where the control topic's name ends: give --control-topic")
    try:
        offsets = json.loads(f"{value}")
        positions = [SourcePosition(topic, int(partition), offset) for partition, offset in offsets.items()]
    except (ValueError, AttributeError):
        raise FlowError(f"{path}: {name} is no JSON of partitions and offsets") from None
    if not all(type(one.offset) is int and one.offset >= 0 for one in positions):
        raise FlowError(f"{path}: {name} has something else than offsets")
    return SinkOffsets(topic, group, tuple(positions))


def property_of(sink: SinkOffsets, target_topic: str, found: Found) -> tuple[str, str]:
    """Return the name and the value of the property for the copied control topic.

    Raises FlowError if an offset is not exact.
    """
    check_exact(sink.positions, found)
    offsets = {f"{one.partition}": found[one].offset for one in sink.positions}
    return f"{PREFIX}{target_topic}.{sink.group}", json.dumps(offsets, separators=(",", ":"))
