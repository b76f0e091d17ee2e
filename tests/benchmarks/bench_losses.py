"""What a copy keeps of its source, and what a copier that is killed loses or writes twice, seen by another client.

    PYTHONPATH=. python tests/benchmarks/bench_losses.py [--records 300000] [--output FILE] [NAME ...]

NAME: ``mirror`` (`mirror stream`), ``mirrormaker`` (MirrorMaker 2 with exactly-once support), ``plain-spark``; by
default all of them, one after the other, on clusters of their own. Each has what it can do for groups, ACLs and
configurations turned on, at its shortest intervals.

*Kept*: 3 partitions of records with keys, headers and timestamps of 2020, some of which lack a key or a value, in lz4
and in zstd, with committed and aborted transactions, a group that has read a part, an ACL, and a configuration that is
changed while the stream runs. *Killed*: ``records`` of 1 KB in 4 partitions, all processes of the stream killed
(SIGKILL) once half of them are at the target, and started again. confluent-kafka reads both sides. Figures count
records, unless their name says otherwise. They go to results-losses.json, or the file of ``--output``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from mirror.wire.decompress import NAMES as CODECS
from mirror.wire.records import Batch
from tests.benchmarks.bench_latency import COPY, PARTITIONS, STREAMS, TOPIC, Load, create, our_stream
from tests.benchmarks.bench_recovery import kill
from tests.benchmarks.brokers import cluster
from tests.benchmarks.mirrormaker import mirrormaker, properties
from tests.benchmarks.side_by_side.fetching import fetch_all
from tests.benchmarks.side_by_side.links import LATEST, READ_UNCOMMITTED, Offsets, Topic
from tests.benchmarks.side_by_side.mirrormaker_settings import java

Start = Callable[[Load], contextlib.AbstractContextManager[int]]
RESULTS: Final = Path(__file__).with_name("results-losses.json")
RECORDS: Final = 300_000
WITHIN_S: Final = 300.0
FOLLOWED_WITHIN_S: Final = 45.0
"""For groups, ACLs and configurations: all intervals are a second."""
_KEPT_PARTITIONS: Final = 3
_EACH: Final = 1_000
"""Records of a partition in one codec."""
_IN_TRANSACTION: Final = 100
_BATCH: Final = 100
_FIRST_MS: Final = 1_577_836_800_000
_GROUP: Final = "g-readers"
_READER: Final = "User:alice"
_READ: Final = 1_500
"""The group's position in each partition: before all transactions, so that it is the number of a record, too."""
_ABORTED: Final = b"aborted"
_SIZE: Final = "max.message.bytes"
_GUARDED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_OURS: Final = f"""sync-interval-ms = 1000
acls = {{ sync = true }}

[flows.f.groups]
include = ["{_GROUP}"]
interval-ms = 1000"""
_THEIRS: Final = {
    "a->b.groups": _GROUP,
    "a->b.emit.checkpoints.enabled": "true",
    "a->b.emit.checkpoints.interval.seconds": "1",
    "a->b.sync.group.offsets.enabled": "true",
    "a->b.sync.group.offsets.interval.seconds": "1",
    "a->b.refresh.groups.interval.seconds": "5",
    "a->b.offset.lag.max": "0",
    "a->b.sync.topic.configs.enabled": "true",
    "a->b.sync.topic.configs.interval.seconds": "1",
    "a->b.sync.topic.acls.interval.seconds": "1",
}


@contextlib.contextmanager
def _their_stream(load: Load) -> Iterator[int]:
    settings = properties(load.source, load.target, TOPIC, exactly_once=True, tasks=PARTITIONS) | _THEIRS
    with mirrormaker(load.folder, settings, heap=java(PARTITIONS)) as process:
        yield process.pid


@dataclass(frozen=True, slots=True)
class Copier:
    """``start`` with all that it can keep; ``creates``: also the topic. ``stream``: its name in bench_latency.py."""

    start: Start
    stream: str
    creates: bool = True


COPIERS: Final = {
    "mirror": Copier(partial(our_stream, _OURS), "mirror"),
    "mirrormaker": Copier(_their_stream, "mirrormaker"),
    "plain-spark": Copier(STREAMS["plain-spark"], "plain-spark", creates=False),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as confluent-kafka has it. ``name`` says which one it is."""

    partition: int
    offset: int
    time_ms: int
    name: str
    content: tuple[Any, ...]
    """Key, value and headers."""


def read(address: str, topic: str, partitions: int) -> list[Seen]:
    """Return all records that a reader at read_committed gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "losses",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[Seen] = []
    try:
        left = set(range(partitions))
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        until = time.monotonic() + WITHIN_S
        while left and time.monotonic() < until:
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(_seen(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _seen(message: Any) -> Seen:
    headers = tuple(message.headers() or ())
    name = str(headers[0][1].decode()) if headers else ""
    content = (message.key(), message.value(), headers)
    return Seen(message.partition(), message.offset(), message.timestamp()[1], name, content)


def differences(source: Sequence[Seen], target: Sequence[Seen]) -> dict[str, int]:
    """Count how the copy differs: pure. Records are recognized by their names, which no two of the source share."""
    originals = {one.name: one for one in source}
    counts = Counter(one.name for one in target)
    pairs = [(originals[one.name], one) for one in target if one.name in originals]
    orders = [[one.offset for one, other in pairs if other.partition == number] for number in range(_KEPT_PARTITIONS)]
    return {
        "missing": len(originals.keys() - counts.keys()),
        "doubled": counts.total() - len(counts),
        "aborted": sum(one.name not in originals for one in target),
        "moved": sum(one.partition != other.partition for one, other in pairs),
        "reordered": sum(later < earlier for order in orders for earlier, later in itertools.pairwise(order)),
        "changed": sum(one.content != other.content for one, other in pairs),
        "retimed": sum(one.time_ms != other.time_ms for one, other in pairs),
        "other_offset": sum(one.offset != other.offset for one, other in pairs),
    }


def _kept(copier: Copier) -> dict[str, Any]:
    with (
        cluster(properties=_GUARDED) as a,
        cluster(properties=_GUARDED) as b,
        tempfile.TemporaryDirectory(prefix="losses-") as folder,
    ):
        source, target = a.bootstrap_servers, b.bootstrap_servers
        _make(source)
        if not copier.creates:
            create(target, COPY, _KEPT_PARTITIONS)
        originals = read(source, TOPIC, _KEPT_PARTITIONS)
        load = Load(source, target, Path(folder), _KEPT_PARTITIONS, epoch_ms=60_000)
        with copier.start(load):
            _await(lambda: _names(target) >= {one.name for one in originals}, WITHIN_S)
            _set(source, TOPIC, "3000000")
            _await(lambda: all(_followed(target).values()), FOLLOWED_WITHIN_S)
            followed = _followed(target)
        copies = read(target, COPY, _KEPT_PARTITIONS)
        found: dict[str, Any] = {"records": len(originals), **differences(originals, copies), **followed}
        found["group_reads_again"] = _read_again(target, originals, copies) if followed["group"] else None
        return found | _batches("source", source, TOPIC) | _batches("target", target, COPY)


def _make(address: str) -> None:
    """The source of what is to be kept."""
    admin = _admin(address)
    config = {"retention.ms": "-1", _SIZE: "2000000"}
    admin.create_topics([NewTopic(TOPIC, _KEPT_PARTITIONS, 1, config=config)])[TOPIC].result(WITHIN_S)
    of_topic = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL)
    binding = AclBinding(*of_topic, _READER, "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin.create_acls([binding])[binding].result(WITHIN_S)
    for at, codec in enumerate(("zstd", "lz4")):
        _produce(Producer(_producing(address, codec)), at * _EACH, _EACH)
    transactional = Producer(_producing(address, "lz4") | {"transactional.id": "losses"})
    transactional.init_transactions(WITHIN_S)
    for at, aborted in ((0, False), (1, True), (2, False)):
        transactional.begin_transaction()
        _produce(transactional, 2 * _EACH + at * _IN_TRANSACTION, _IN_TRANSACTION, aborted=aborted)
        (transactional.abort_transaction if aborted else transactional.commit_transaction)(WITHIN_S)
    reader = Consumer({"bootstrap.servers": address, "group.id": _GROUP, "log_level": 0})
    places = [TopicPartition(TOPIC, number, _READ) for number in range(_KEPT_PARTITIONS)]
    reader.commit(offsets=places, asynchronous=False)
    reader.close()


def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def _producing(address: str, codec: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "compression.type": codec,
        "batch.num.messages": _BATCH,
        "linger.ms": 20,
        "enable.idempotence": True,
        "log_level": 0,
    }


def _produce(producer: Producer, first: int, count: int, *, aborted: bool = False) -> None:
    for number in range(first, first + count):
        for partition in range(_KEPT_PARTITIONS):
            name = b"%d-%d" % (partition, number)
            key = None if number % 10 == 0 else b"key-%d" % number
            value = (
                _ABORTED if aborted else None if number % 7 == 0 else b'{"order": %d, "note": "%100d"}' % (number, 0)
            )
            headers: list[tuple[str, bytes | None]] = [("name", name), ("empty", None), ("name", b"again")]
            producer.produce(TOPIC, value, key, partition, headers=headers, timestamp=_FIRST_MS + number)  # type: ignore[arg-type]
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0, "the source could not be filled"


def _set(address: str, topic: str, value: str) -> None:
    admin = _admin(address)
    entry = ConfigEntry(_SIZE, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)


def _followed(address: str) -> dict[str, bool]:
    """Whether configuration, ACL and group are on the target."""
    admin = _admin(address)
    if COPY not in admin.list_topics(timeout=WITHIN_S).topics:
        return {"configuration": False, "acl": False, "group": False}
    resource = ConfigResource(ConfigResource.Type.TOPIC, COPY)
    config = admin.describe_configs([resource])[resource].result(WITHIN_S)
    of_copy = (ResourceType.TOPIC, COPY, ResourcePatternType.LITERAL)
    wanted = AclBindingFilter(*of_copy, _READER, None, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[arg-type]
    acls = admin.describe_acls(wanted).result(WITHIN_S)
    positions = _positions(address)
    return {
        "configuration": config[_SIZE].value == "3000000",
        "acl": bool(acls),
        "group": len(positions) == _KEPT_PARTITIONS,
    }


def _positions(address: str) -> dict[int, int]:
    """The group's positions in the copy, by partition."""
    reader = Consumer({"bootstrap.servers": address, "group.id": _GROUP, "log_level": 0})
    try:
        places = [TopicPartition(COPY, number) for number in range(_KEPT_PARTITIONS)]
        return {one.partition: one.offset for one in reader.committed(places, timeout=WITHIN_S) if one.offset >= 0}
    finally:
        reader.close()


def _read_again(address: str, source: Sequence[Seen], target: Sequence[Seen]) -> int:
    """How many records that the group has read at the source it would read again at the target."""
    read_there = {one.name for one in source if one.offset < _READ}
    positions = _positions(address)
    return sum(one.name in read_there and one.offset >= positions[one.partition] for one in target)


def _names(address: str) -> set[str]:
    """Of the records at the target, or of none while it has no topic."""
    known = _admin(address).list_topics(timeout=WITHIN_S).topics
    return {one.name for one in read(address, COPY, _KEPT_PARTITIONS)} if COPY in known else set()


def _batches(side: str, address: str, topic: str) -> dict[str, Any]:
    codecs: Counter[str] = Counter()

    def note(_partition: int, batches: list[Batch], _size: int) -> None:
        codecs.update(CODECS.get(batch.attributes & 7, "none") for batch in batches)

    fetch_all(address, topic, note)
    return {f"{side}_batches": codecs.total(), f"{side}_codecs": sorted(codecs)}


def _await(holds: Callable[[], bool], within_s: float) -> None:
    """Until it holds, or the time is over: then the figures say what is missing."""
    until = time.monotonic() + within_s
    while not holds() and time.monotonic() < until:
        time.sleep(1.0)


def _killed(copier: Copier, records: int) -> dict[str, int]:
    with cluster() as a, cluster() as b, tempfile.TemporaryDirectory(prefix="losses-") as folder:
        source, target = a.bootstrap_servers, b.bootstrap_servers
        create(source, TOPIC, PARTITIONS)
        create(target, COPY, PARTITIONS)
        _fill(source, records)
        load = Load(source, target, Path(folder), PARTITIONS, epoch_ms=60_000)
        start = STREAMS[copier.stream]
        with start(load) as running, Offsets(Topic(target, COPY)) as offsets:
            until = time.monotonic() + WITHIN_S
            while (there := sum(offsets.read(LATEST, READ_UNCOMMITTED).values())) < records // 2:
                assert time.monotonic() < until, f"{there} of {records} records were there after {WITHIN_S:.0f} s"
                time.sleep(0.02)
            kill(running)
        with start(load):
            found: Counter[int] = Counter()

            def complete() -> bool:
                nonlocal found
                found = _numbers(target)
                return len(found) >= records

            _await(complete, WITHIN_S)
            time.sleep(5.0)  # what is still written twice comes within its last batch
            found = _numbers(target)
        missing = records - len(found)
        return {"killed_records": records, "killed_missing": missing, "killed_doubled": found.total() - len(found)}


def _fill(address: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "enable.idempotence": True, "log_level": 0})
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, b"%-1000d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WITHIN_S) == 0, "the source could not be filled"


def _numbers(address: str) -> Counter[int]:
    return Counter(int(one.content[1]) for one in read(address, COPY, PARTITIONS))


def measure(name: str, records: int = RECORDS) -> dict[str, Any]:
    """All figures of one copier."""
    copier = COPIERS[name]
    return {**_kept(copier), **_killed(copier, records)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COPIERS)}")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - COPIERS.keys():
        parser.error(f"no such copier: {', '.join(sorted(unknown))}")
    results: dict[str, dict[str, Any]] = {}
    for name in asked.names or COPIERS:
        results[name] = measure(name, asked.records)
        sys.stdout.write(f"{name} {json.dumps(results[name])}\n")
        sys.stdout.flush()
        asked.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
