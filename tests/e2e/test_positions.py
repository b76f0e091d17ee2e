"""Engines that are stopped on the source continue on the target: Spark, Kafka Streams, a group by Kafka's own tool."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.engines import hdfs, word_counts
from tests.e2e.site import Run, Site, flow
from tests.e2e.streaming_queries import Plan, run_queries
from tests.e2e.test_groups import consumed, next_of
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

QUERIES: Final = ("files", "batches", "counts")


def _positions(site: Site, *arguments: str) -> Run:
    command, *others = arguments
    whole = [site.python, "-P", "-m", "mirror.cli", "positions", command, "--config", str(site.config), *others]
    return site.finish(site.launch(whole))


def _write(side: Side, topic: str, partitions: int, numbers: Iterator[int]) -> None:
    """Records in transactions, some of which are aborted: the copy has other offsets."""
    producer = Producer({"bootstrap.servers": side.address, "transactional.id": topic})
    producer.init_transactions()
    for committed in (True, False, True):
        producer.begin_transaction()
        for number in (next(numbers) for _ in range(20 * partitions)):
            producer.produce(topic, b"%d" % number, b"k%d" % (number % 7), number % partitions)
        producer.flush()  # A transaction without records on the broker cannot be aborted.
        producer.commit_transaction() if committed else producer.abort_transaction()


def _content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("kind", ["folder", "file", "hdfs"])
def test_queries_continue_on_the_target(
    site: Site, source: Side, target: Side, unique: Callable[[str], str], kind: str
) -> None:
    topics, name, numbers = {unique("orders"): 3, unique("clicks"): 1}, unique("f"), count()
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [*topics])})
    for topic, partitions in topics.items():
        source.create(topic, partitions)
        _write(source, topic, partitions, numbers)
    with ExitStack() as stack:
        home = f"{site.folder}" if kind == "folder" else site.folder.as_uri()
        if kind == "hdfs":
            home = stack.enter_context(hdfs(site.folder))
        old, new = f"{home}/old", f"{home}/new"
        run_queries(Plan(source.address, tuple(topics), str(site.folder), old, QUERIES))
        assert site.run().status == 0
        for topic, partitions in topics.items():
            _write(source, topic, partitions, numbers)
        run_queries(Plan(source.address, tuple(topics), str(site.folder), old, QUERIES, fail_in=1))
        before = _content(site.folder / "old")
        planned = json.loads((site.folder / "batches" / "1.json").read_text())
        # Not before what the queries have read is copied.
        early = _positions(site, "checkpoint", f"{old}/files", f"{new}/files")
        assert (early.status, (site.folder / "new").exists()) == (3, False)
        assert "not copied yet" in early.out
        assert site.run().status == 0
        for query in QUERIES:
            done = _positions(site, "checkpoint", f"{old}/{query}", f"{new}/{query}")
            assert done.status == 0, done.err
            assert ("batch 1 was planned and not committed" in done.err) is (query == "batches")
        assert _content(site.folder / "old") == before, "nothing of the old checkpoints has changed"
        for topic, partitions in topics.items():
            _write(source, topic, partitions, numbers)
        assert site.run().status == 0
        run_queries(Plan(target.address, tuple(f"a.{topic}" for topic in topics), str(site.folder), new, QUERIES))
    records = [
        int(value or b"")
        for topic, partitions in topics.items()
        for partition in range(partitions)
        for value in source.read(topic, partition)
    ]
    assert json.loads((site.folder / "files.json").read_text()) == sorted(records)
    batches = [json.loads(path.read_text()) for path in sorted((site.folder / "batches").glob("*.json"))]
    assert batches[1] == planned, "the batch that was planned on the source has the same records"
    assert sorted(number for batch in batches for number in batch) == sorted(records)
    assert json.loads((site.folder / "counts.json").read_text()) == Counter(f"k{number % 7}" for number in records)


def test_an_application_of_kafka_streams_continues_with_its_state(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    app, topic, out, name = unique("app"), unique("words"), unique("counts"), unique("f")
    lines = ['naming = "identity"', 'on-gap = "skip"', f'[flows.{name}.groups]\ninclude = ["{app}"]']
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [topic, f"{app}-.*"], *lines)})
    source.create(topic, 2)
    for side in (source, target):
        side.create(out)
    words = [b"w%d" % (number % 7) for number in range(100)]
    source.fill(topic, words[:40])
    source.fill(topic, words[40:70], partition=1)
    with word_counts(site.folder, source.address, app, str(site.folder / "state-a"), topic, out):
        eventually(lambda: sum(_last(source, out).values()) == 70, within_s=90, what="70 words are counted")
    early = _positions(site, "streams", app)
    assert (early.status, "not copied to their ends yet" in early.out) == (3, True), early.out + early.err
    assert site.run().status == 0
    ready = _positions(site, "streams", app)
    assert ready.status == 0, ready.out + ready.err
    assert ready.out.count("copied to its end") == 2, "a changelog and a repartition topic"
    source.fill(topic, words[70:], partition=1)
    assert site.run().status == 0
    with word_counts(site.folder, target.address, app, str(site.folder / "state-b"), topic, out):
        counted = {word.decode(): count for word, count in Counter(words).items()}
        eventually(lambda: _last(target, out) == counted, within_s=90, what="all words are counted once")


def _last(side: Side, topic: str) -> dict[str, int]:
    """The last value of each key that the application has written."""
    return {key: int(value) for key, value in _pairs(side, topic)}


def _pairs(side: Side, topic: str) -> Iterator[tuple[str, bytes]]:
    options = {"bootstrap.servers": side.address, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**options, "enable.auto.commit": False, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            yield (message.key() or b"").decode(), message.value() or b""
    finally:
        consumer.close()


def test_kafkas_tool_sets_a_group_to_translated_offsets(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, group, name, numbers = unique("orders"), unique("billing"), unique("f"), count()
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [topic])})
    source.create(topic)
    _write(source, topic, 1, numbers)
    assert len(consumed(source, group, topic, 30)) == 30
    assert site.run().status == 0
    listed = _positions(site, "translate", "--group", group, "--as", "csv")
    assert listed.status == 0, listed.err
    file = site.folder / "offsets.csv"
    file.write_text(listed.out)
    _tool(target, "--reset-offsets", "--from-file", str(file), "--group", group, "--execute")
    assert next_of(target, group, f"a.{topic}") == b"50", "20 to 39 are aborted"
    exported = _tool(
        source, "--reset-offsets", "--export", "--to-current", "--group", group, "--topic", topic, "--dry-run"
    )
    (site.folder / "exported.csv").write_text(exported)
    again = _positions(site, "translate", str(site.folder / "exported.csv"), "--as", "csv")
    assert (again.status, f"{group},{again.out}") == (0, listed.out)


def _tool(side: Side, *arguments: str) -> str:
    """Run ``kafka-consumer-groups``."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    options = [*jvm.PLAIN, "-Dlog4j2.level=OFF", "-cp", class_path(fetch())]
    command = [f"{find_java().path}", *options, main, "--bootstrap-server", side.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout
