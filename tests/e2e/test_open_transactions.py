"""A producer of the source dies with its transaction open: a plan, a run and the status name what it keeps back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark]

HANGS = """
import sys, time
from confluent_kafka import Producer
address, topic, name = sys.argv[1:]
producer = Producer({"bootstrap.servers": address, "transactional.id": name, "transaction.timeout.ms": 900000})
producer.init_transactions(60)
producer.begin_transaction()
for number in range(12):
    producer.produce(topic, b"open %d" % number, partition=0)
assert producer.flush(60) == 0
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture
def topic(source: Side, unique: Callable[[str], str]) -> Iterator[str]:
    """20 records in each of two partitions; in the first one 12 more behind a transaction that is never ended."""
    topic = unique("orders")
    source.create(topic, 2)
    for partition in range(2):
        source.fill(topic, [b"%d" % number for number in range(20)], partition)
    command = [sys.executable, "-c", HANGS, source.address, topic, f"app-{topic}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
        finally:
            child.send_signal(signal.SIGKILL)
    yield topic
    end(source, topic)


def end(source: Side, topic: str) -> None:
    """Its application comes back: the transaction is aborted."""
    source.producer(transactional_id=f"app-{topic}").init_transactions(60)


def ask(site: Site, command: str) -> dict[str, Any]:
    run = site.finish(site.launch([*site.command(command), "--json"]))
    (flow,) = json.loads(run.out)["flows"]
    return dict(flow)


def test_what_is_behind_a_hung_transaction_is_named(
    source: Side, target: Side, site: Site, unique: Callable[[str], str], topic: str
) -> None:
    name = unique("f")
    flow = f'source = "a"\ntarget = "b"\ntopics = ["{topic}"]'
    site.write({"a": source.address, "b": target.address}, {name: flow})
    # What is younger than 10 s is not worth a word: a healthy transaction is as likely to be open at that moment.
    eventually(lambda: ask(site, "plan")["withheld"][0]["seen_ms"] - began(site) >= 10_000, every_s=1, within_s=60)

    found = ask(site, "plan")
    (one,) = found["withheld"]
    assert (one["topic"], one["partition"], one["offset"], one["records"]) == (topic, 0, 20, 12)
    assert one["transactional_id"] == f"app-{topic}"
    assert one["producer_id"] >= 0
    named(next(line for line in found["warnings"] if "transaction" in line), topic, one["producer_id"])

    run = site.run()
    assert run.status == 0, run.err
    results = site.partitions(name)
    assert (results[topic, 0]["end"], results[topic, 0]["records"], results[topic, 0]["outcome"]) == (
        20,
        20,
        "complete",
    )
    assert results[topic, 0]["withheld"]["records"] == 12
    assert results[topic, 1]["withheld"] is None
    named(next(line for line in run.err.splitlines() if "transaction" in line), topic, one["producer_id"])
    assert "12 records from offset 20 on" in " ".join(run.out.split()).replace("│", "") or "remarks" in run.out
    assert "Records behind an open transaction of the source" in (site.report / "report.html").read_text("utf-8")

    now = ask(site, "status")
    assert (now["lag"], now["withheld_records"]) == (0, 12)
    assert now["partitions"][0]["high_watermark"] == 32
    assert now["partitions"][0]["end"] == 20
    named(site.ask("status"), topic, one["producer_id"])

    end(source, topic)
    eventually(lambda: ask(site, "status")["withheld_records"] == 0, every_s=1, what="the transaction's abort")
    assert site.run().status == 0
    assert site.partitions(name)[topic, 0]["withheld"] is None
    assert len(target.read(f"a.{topic}")) == 20


def began(site: Site) -> int:
    start_ms = ask(site, "plan")["withheld"][0]["start_ms"]
    assert isinstance(start_ms, int), "its coordinator tells since when it is open"
    return start_ms


def named(text: str, topic: str, producer_id: int) -> None:
    words = " ".join(text.split())
    assert f"{topic}-0: 12 records from offset 20 on are not copied" in words
    assert f"producer id {producer_id}" in words
    assert f"--topic {topic} --partition 0 --start-offset 20" in words
