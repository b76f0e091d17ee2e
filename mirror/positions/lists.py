"""Lists of positions, in the forms that programs read and write. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from mirror.errors import FlowError
from mirror.positions.places import SourcePosition
from mirror.positions.spark_log import kafka_positions, to_json
from mirror.wire.integers import INT32_MAX, INT64_MAX

_FIELDS: Final = (3, 4)


class Listed(NamedTuple):
    """A position in a list, which may be that of a group."""

    group: str
    """Empty if none is named."""
    position: SourcePosition


class Moved(NamedTuple):
    """A position on the target."""

    group: str
    topic: str
    partition: int
    offset: int


def parse_list(text: str, path: str) -> list[Listed]:
    """Return the positions of a list. Raises FlowError with the ``path`` and the line that is wrong.

    It is CSV, as ``kafka-consumer-groups --export`` writes it (topic,partition,offset, and for several groups
    group,topic,partition,offset), or JSON, as Spark writes it ({"topic":{"0":12}}).
    """
    if text.lstrip().startswith("{"):
        positions = kafka_positions(text, path)
        if positions is None:
            raise FlowError(f'{path} is JSON, and not of the form {{"topic":{{"PARTITION":OFFSET}}}}')
        return [Listed("", one) for one in positions]
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        found = [_listed(row, f"line {rows.line_num} of {path}") for row in rows if row]
    except csv.Error as error:
        raise FlowError(f"line {rows.line_num} of {path} is no CSV: {error}") from None
    if not found:
        raise FlowError(f"{path} has no positions")
    return found


def _listed(row: list[str], where: str) -> Listed:
    fields = [one.strip() for one in row]
    if len(fields) not in _FIELDS or not all(fields):
        raise FlowError(f"{where} is not [GROUP,]TOPIC,PARTITION,OFFSET: {','.join(fields)[:80]!r}")
    group, topic, partition, offset = ("", *fields) if len(fields) == min(_FIELDS) else fields
    if not _is_number(partition, INT32_MAX) or not _is_number(offset, INT64_MAX):
        raise FlowError(f"{where} has no partition and offset: {','.join(fields)[:80]!r}")
    return Listed(group, SourcePosition(topic, int(partition), int(offset)))


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(f"{most}") and int(text) <= most


def to_csv(positions: Iterable[Moved]) -> str:
    """Return what ``kafka-consumer-groups --reset-offsets --from-file`` reads: without a group for one --group only."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(one if one.group else one[1:] for one in positions)
    return text.getvalue()


def to_spark(positions: Iterable[Moved]) -> str:
    """Return the value of ``startingOffsets`` of Spark's Kafka source."""
    return to_json([one[1:] for one in positions]) + "\n"


def to_flink(positions: Iterable[Moved]) -> str:
    """Return Java for ``setStartingOffsets`` of Flink's Kafka source, and the options of a table for SQL.

    A partition that is not in the list is an error of Flink's (NONE), instead of one that is read from its beginning.
    """
    found = list(positions)
    entries = ",\n".join(
        f'    Map.entry(new TopicPartition("{_java(one.topic)}", {one.partition}), {one.offset}L)' for one in found
    )
    lines = [
        "// .setStartingOffsets(OffsetsInitializer.offsets(offsets, OffsetResetStrategy.NONE))",
        f"Map<TopicPartition, Long> offsets = Map.ofEntries(\n{entries});",
    ]
    topics: dict[str, list[Moved]] = {}
    for one in found:
        topics.setdefault(one.topic, []).append(one)
    for topic, ends in topics.items():
        offsets = ";".join(f"partition:{one.partition},offset:{one.offset}" for one in ends)
        lines.append(f"// SQL, table of topic {topic}: 'scan.startup.mode' = 'specific-offsets',")
        lines.append(f"//   'scan.startup.specific-offsets' = '{offsets}'")
    return "\n".join(lines) + "\n"


def _java(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


FORMS: Final[Mapping[str, Callable[[Iterable[Moved]], str]]] = {"csv": to_csv, "flink": to_flink, "spark": to_spark}
"""What writes each form that a program reads, by its name."""
