"""Compare the configurations of source and target topics, and warn of what the target's will do to the records.

Pure: takes configurations, returns lines. Each line says what to set; topics with the same warning share one line.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mirror.errors import named
from mirror.producer.settings import PRODUCER_KEYS
from mirror.relay.batches.topic_config import FOREVER, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.config.models import FlowConfig

ASIDE_MESSAGE_BYTES: Final = 100_000_000
"""The ``max.message.bytes`` of an aside topic: the largest batch for which the brokers' default of
``socket.request.max.bytes``, 104,857,600, has room in any case."""
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


def warnings(flow: FlowConfig, pairs: Mapping[str, tuple[TopicConfig, TopicConfig]]) -> list[str]:
    """Return the lines about ``pairs``: target topic -> the configuration of its source topic, and its own."""
    return shared_lines(
        {name: (*_compare_times(flow, *pair), *_compare_content(flow, *pair)) for name, pair in pairs.items()}
    )


def shared_lines(lines: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each of the ``lines`` about target topics once, with the topics that it is about."""
    topics: dict[str, list[str]] = defaultdict(list)
    for name, about in sorted(lines.items()):
        for line in about:
            topics[line].append(name)
    return [f"{named('target topic', names)}: {line}" for line, names in topics.items()]


def _compare_times(flow: FlowConfig, source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    """Yield the lines about the records' timestamps, and about records that are refused or deleted because of them."""
    if target.append_time:
        if not source.append_time:
            yield (
                "message.timestamp.type = LogAppendTime, where the source has CreateTime: each record gets the time of"
                " its copy as its timestamp; set CreateTime to keep the timestamps"
            )
        return
    if source.append_time:
        yield (
            "message.timestamp.type = CreateTime, where the source has LogAppendTime: every batch is re-encoded to keep"
            " its timestamps, which costs many times the CPU; set LogAppendTime if the time of the copy will do"
        )
    if flow.on_bad_timestamp == "fail":
        yield from _refused_times(source, target)
    if target.retention_ms < source.retention_ms:
        yield (
            f"retention.ms = {_duration(target.retention_ms)}, where the source has {_duration(source.retention_ms)}:"
            " older records are deleted soon after they are copied; raise retention.ms to the source's to keep them"
        )


def _refused_times(source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    advice = 'raise it, or set on-bad-timestamp = "clamp", "skip" or "aside"'
    # With LogAppendTime the source's brokers set the timestamps, and never set one in the future.
    if not source.append_time and target.after_max_ms < source.after_max_ms:
        yield (
            f"{target.after_key} = {_duration(target.after_max_ms)}, where the source has"
            f" {_duration(source.after_max_ms)}: a record whose timestamp is further in the future fails its partition;"
            f" {advice}"
        )
    if target.before_max_ms < source.retention_ms:
        yield (
            f"{target.before_key} = {_duration(target.before_max_ms)}, and the source's retention.ms is"
            f" {_duration(source.retention_ms)}: a record that is older than that when it is copied fails its"
            f" partition; {advice}"
        )


def _compare_content(flow: FlowConfig, source: TopicConfig, target: TopicConfig) -> Iterator[str]:
    """Yield the lines about keys, sizes and compression."""
    if "compact" in target.cleanup - source.cleanup:
        refused = "; a record without a key fails its partition (on-no-key)" if flow.on_no_key == "fail" else ""
        yield (
            "cleanup.policy has compact, which the source's has not: only the last record of each key is kept"
            f"{refused}; remove compact to keep all records"
        )
    if target.max_message_bytes < source.max_message_bytes:
        fates = {"fail": "fails its partition (on-too-large)", "skip": "is left out", "aside": f"goes to {flow.aside}"}
        record = fates[flow.on_too_large]
        yield (
            f"max.message.bytes = {target.max_message_bytes}, where the source has {source.max_message_bytes}: larger"
            f" batches are split and re-encoded, and a single record that is larger {record}; raise it to the source's"
        )
    if target.compression not in {"producer", source.compression, _broker_codec(flow)}:
        yield (
            f"compression.type = {target.compression}: the brokers recompress batches of another codec, which costs"
            f' them CPU; set it to producer, or the flow\'s compression = "{_flow_codec(target.compression)}"'
        )
    memory = int(flow.producer.get("buffer.memory", PRODUCER_KEYS["buffer.memory"].default))
    if source.max_message_bytes > memory // 2:
        yield (
            f"its source accepts batches of up to {source.max_message_bytes} bytes (max.message.bytes), and the flow's"
            f" buffer.memory is {memory}: fewer than two such batches can be in flight, and a batch larger than all of"
            f" it can never be sent; set the producer's buffer.memory to {2 * source.max_message_bytes} or more"
        )


def _broker_codec(flow: FlowConfig) -> str:
    """Return the name that brokers have for the flow's codec."""
    return "uncompressed" if flow.compression == "none" else flow.compression


def _flow_codec(codec: str) -> str:
    """Return the name that a flow has for a broker's codec."""
    return "none" if codec == "uncompressed" else codec


def _duration(ms: int) -> str:
    """Return the exact time in ms, and in a larger unit where it is a whole number: ``3600000 (1 hours)``."""
    if ms >= FOREVER:
        return "no limit"
    for unit, name in _UNITS:
        if ms >= unit and ms % unit == 0:
            return f"{ms} ({ms // unit} {name})"
    return f"{ms} ms"


def aside_warnings(name: str, configs: Mapping[str, str], contents: str) -> Iterable[str]:
    """Yield the lines about an aside topic with this configuration, which does not take or keep all its ``contents``.

    Keys that are missing have the brokers' defaults, as those of a topic that is created without them.
    """
    topic = TopicConfig.of(configs)
    if "compact" in topic.cleanup:
        yield f"topic {name} has cleanup.policy = {configs['cleanup.policy']}: {contents} have to be kept; set delete"
    elif topic.retention_ms < FOREVER:
        yield (
            f"topic {name} has retention.ms = {_duration(topic.retention_ms)}: {contents} are deleted then, and are"
            " nowhere else on the target; set -1"
        )
    if topic.max_message_bytes < ASIDE_MESSAGE_BYTES:
        yield (
            f"topic {name} has max.message.bytes = {topic.max_message_bytes}: a larger record fails its partition; set"
            f" {ASIDE_MESSAGE_BYTES}"
        )


def flow_topic_warnings(name: str, configs: Mapping[str, str], contents: str) -> Iterable[str]:
    """Yield a line if the flow's own topic ``name``, with this configuration, does not keep its ``contents``."""
    policy = configs.get("cleanup.policy", "delete")
    if policy != "compact":
        yield (
            f"topic {name} has cleanup.policy = {policy}: {contents} are deleted after its"
            " retention; set cleanup.policy = compact"
        )
