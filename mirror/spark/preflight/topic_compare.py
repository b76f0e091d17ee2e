"""A look at source and target topics before anything is copied: what their configurations will make of the records.

Pure: configurations in, lines out. Only what matters for a pair of topics is said, each with what to set; topics that
share a line are named in one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mirror.producer.settings import PRODUCER_KEYS
from mirror.relay.batches.topic_config import FOREVER, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.config.models import FlowConfig

_NAMED: Final = 3
"""Topics named in one line; of the others their number."""
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


def warnings(flow: FlowConfig, pairs: Mapping[str, tuple[TopicConfig, TopicConfig]]) -> list[str]:
    """The lines about ``pairs``: target topic -> its source's configuration and its own."""
    told: dict[str, list[str]] = defaultdict(list)
    for name, (source, target) in sorted(pairs.items()):
        for line in (*_times(flow, source, target), *_content(flow, source, target)):
            told[line].append(name)
    return [f"{named(names)}: {line}" for line, names in told.items()]


def named(names: list[str]) -> str:
    """Target topics for a line: the first few by name, of the others their number."""
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"target topic{'s' if len(names) > 1 else ''} {shown}{more}"


def _times(flow: FlowConfig, source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    """What becomes of the records' times, and of the records because of them."""
    if target.append_time:
        if not source.append_time:
            yield (
                "message.timestamp.type = LogAppendTime, where the source has CreateTime: the records' times become"
                " those of their copying; set CreateTime to keep them"
            )
        return
    if source.append_time:
        yield (
            "message.timestamp.type = CreateTime, where the source has LogAppendTime: every batch is encoded anew to"
            " keep its times, at many times the CPU; set LogAppendTime if they may be those of the copying"
        )
    if flow.on_bad_timestamp == "fail":
        yield from _refused_times(source, target)
    if target.retention_ms < source.retention_ms:
        yield (
            f"retention.ms = {_duration(target.retention_ms)}, where the source has {_duration(source.retention_ms)}:"
            " older records are deleted as soon as they are copied; raise retention.ms to the source's to keep them"
        )


def _refused_times(source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    or_else = 'raise it, or set on-bad-timestamp = "clamp" or "skip"'
    # A source that sets the times itself sets none in the future.
    if not source.append_time and target.after_max_ms < source.after_max_ms:
        yield (
            f"{target.after_key} = {_duration(target.after_max_ms)}, where the source has"
            f" {_duration(source.after_max_ms)}: a record whose time is further in the future fails its partition;"
            f" {or_else}"
        )
    if target.before_max_ms < source.retention_ms:
        yield (
            f"{target.before_key} = {_duration(target.before_max_ms)}, and the source's retention.ms is"
            f" {_duration(source.retention_ms)}: a record older than that when it is copied fails its partition;"
            f" {or_else}"
        )


def _content(flow: FlowConfig, source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    """What becomes of keys, sizes and compression."""
    if "compact" in target.cleanup - source.cleanup:
        refused = "; a record without a key fails its partition (on-no-key)" if flow.on_no_key == "fail" else ""
        yield (
            "cleanup.policy has compact, which the source's has not: of each key only the last record is kept"
            f"{refused}; take it out to keep all"
        )
    if target.max_message_bytes < source.max_message_bytes:
        single = "fails its partition (on-too-large)" if flow.on_too_large == "fail" else "is left out"
        yield (
            f"max.message.bytes = {target.max_message_bytes}, where the source has {source.max_message_bytes}: larger"
            f" batches are encoded anew in parts, and a single record that is larger {single}; raise it to the source's"
        )
    if target.compression not in {"producer", source.compression, _codec(flow)}:
        yield (
            f"compression.type = {target.compression}: the brokers compress anew what comes in another codec, at their"
            f" CPU's cost; set it to producer, or the flow's compression = \"{_flows(target.compression)}\""
        )
    memory = int(flow.producer.get("buffer.memory", PRODUCER_KEYS["buffer.memory"].default))
    if source.max_message_bytes > memory // 2:
        yield (
            f"its source takes batches of up to {source.max_message_bytes} bytes (max.message.bytes), and the flow's"
            f" buffer.memory has {memory}: fewer than two may be under way at once, and one larger than all of it never"
            f" is; set the producer's buffer.memory to {2 * source.max_message_bytes} or more"
        )


def _codec(flow: FlowConfig) -> str:
    """The flow's codec as brokers call it."""
    return "uncompressed" if flow.compression == "none" else flow.compression


def _flows(codec: str) -> str:
    """A broker's codec as a flow calls it."""
    return "none" if codec == "uncompressed" else codec


def _duration(ms: int) -> str:
    """Exact, and in words where that says more: ``3600000 (1 hours)``."""
    if ms >= FOREVER:
        return "no limit"
    for unit, name in _UNITS:
        if ms >= unit and ms % unit == 0:
            return f"{ms} ({ms // unit} {name})"
    return f"{ms} ms"


def progress_topic_warnings(name: str, configs: Mapping[str, str]) -> Iterable[str]:
    """Whether the topic of notes, with this configuration, keeps them."""
    policy = configs.get("cleanup.policy", "delete")
    if policy != "compact":
        yield (
            f"topic {name} has cleanup.policy = {policy}: what it notes of the progress is deleted after its retention;"
            " set cleanup.policy = compact"
        )
