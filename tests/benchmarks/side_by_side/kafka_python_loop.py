"""The same loop with kafka-python: ``python -m ... JSON`` (see :mod:`.copiers`).

``share`` of each partition's records, from the beginning. Its lz4 and zstd are optional packages; cramjam, which is
here already, takes their place: both are compiled.
"""

from __future__ import annotations

import io
import json
import sys
import types
import warnings
from typing import Any

import cramjam

_POLL_MS = 1_000
_CHUNK = 10_000


class _ZstdCompressor:
    """As kafka-python uses zstandard's."""

    def compress(self, payload: bytes) -> bytes:
        return bytes(cramjam.zstd.compress(payload))


class _ZstdDecompressor:
    def stream_reader(self, source: io.BytesIO, **_options: object) -> io.BytesIO:
        return io.BytesIO(bytes(cramjam.zstd.decompress(source.read())))


def _lz4_compress(payload: bytes, **_options: object) -> bytes:
    compressor = cramjam.lz4.Compressor(level=0, content_checksum=False, block_linked=False)  # linked: refused (KIP-57)
    compressor.compress(payload)
    return bytes(compressor.finish())


def _lz4_decompress(payload: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(payload))


def _module(name: str, **members: object) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


def _import() -> Any:
    _module("lz4", frame=_module("lz4.frame", compress=_lz4_compress, decompress=_lz4_decompress))
    _module("zstandard", ZstdCompressor=_ZstdCompressor, ZstdDecompressor=_ZstdDecompressor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka  # type: ignore[import-untyped]
    return kafka


def copy(source: str, topic: str, target: str, copy_topic: str, codec: str, share: float) -> None:
    kafka = _import()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=source,
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 << 20,
    )
    producer = kafka.KafkaProducer(
        bootstrap_servers=target,
        acks="all",
        linger_ms=20,
        batch_size=256 * 1024,
        max_request_size=4 << 20,
        compression_type=None if codec == "none" else codec,
    )
    parts = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = {part: round(end * share) for part, end in consumer.end_offsets(parts).items()}
    left = {part for part in parts if ends[part]}
    futures = []
    while left:
        result = consumer.poll(timeout_ms=_POLL_MS, max_records=_CHUNK)
        for part, records in result.items():
            futures += [_send(producer, copy_topic, record) for record in records if record.offset < ends[part]]
        # The position passes markers and compacted records, which no record shows.
        done = {part for part in left if consumer.position(part) >= ends[part]}
        left -= done
        if done:
            consumer.pause(*done)
    producer.flush()
    for future in futures:
        future.get(timeout=0)


def _send(producer: Any, topic: str, record: Any) -> Any:
    return producer.send(topic, record.value, record.key, record.headers, record.partition, record.timestamp)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    copy(asked["source"], asked["topic"], asked["target"], asked["copy"], asked["codec"], asked["share"])
