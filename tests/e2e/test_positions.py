"""Queries of Spark that are stopped on the source continue on the target; Kafka's own tool sets a group by a list."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.site import Run, Site, flow
from tests.e2e.streaming_queries import Plan, run_queries
from tests.e2e.test_groups import consumed, next_of

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
        producer.commit_transaction() if committed else producer.abort_transaction()


def _content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_queries_continue_on_the_target(
    site: Site, source: Side, target: Side, unique: Callable[[str], str], scheme: str
) -> None:
    topics, name, numbers = {unique("orders"): 3, unique("clicks"): 1}, unique("f"), count()
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [*topics])})
    for topic, partitions in topics.items():
        source.create(topic, partitions)
        _write(source, topic, partitions, numbers)
    old, new = site.folder / "old", site.folder / "new"
    there = Plan(source.address, tuple(topics), str(site.folder), str(old), QUERIES)
    run_queries(there)
    assert site.run().status == 0
    for topic, partitions in topics.items():
        _write(source, topic, partitions, numbers)
    run_queries(Plan(source.address, tuple(topics), str(site.folder), str(old), QUERIES, fail_in=1))
    before = _content(old)
    planned = json.loads((site.folder / "batches" / "1.json").read_text())
    # Not before what the queries have read is copied.
    early = _positions(site, "checkpoint", f"{scheme}{old}/files", f"{scheme}{new}/files")
    assert (early.status, new.exists()) == (3, False)
    assert "not copied yet" in early.out
    assert site.run().status == 0
    for query in QUERIES:
        done = _positions(site, "checkpoint", f"{scheme}{old}/{query}", f"{scheme}{new}/{query}")
        assert done.status == 0, done.err
        assert ("batch 1 was planned and not committed" in done.err) is (query == "batches")
    assert _content(old) == before, "nothing of the old checkpoints has changed"
    for topic, partitions in topics.items():
        _write(source, topic, partitions, numbers)
    assert site.run().status == 0
    run_queries(Plan(target.address, tuple(f"a.{topic}" for topic in topics), str(site.folder), str(new), QUERIES))
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
