"""A process that forks while it reads from a real broker, as Spark's Python workers are made."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mirror.sandbox.cluster import Cluster
from tests.conformance.topics import Topics

pytestmark = pytest.mark.brokers

SCRIPT = """
import json, os, sys
from mirror.client import Consumer, TopicPartition

servers, topic = sys.argv[1:]
tp = TopicPartition(topic, 0)

def reader():
    consumer = Consumer({"bootstrap.servers": servers, "default.api.timeout.ms": 60_000})
    consumer.assign([tp])
    consumer.seek(tp, 0)
    return consumer

def read(consumer):
    return sum(batch.count for fetched in consumer.poll(60_000) for batch in fetched.batches)

parent = reader()
found = {"parent": read(parent)}
pipe, end = os.pipe()
if os.fork() == 0:
    with reader() as child:
        os.write(end, json.dumps({"child": read(child)}).encode())
    os._exit(0)
os.close(end)
with os.fdopen(pipe) as source:
    found |= json.load(source)
os.wait()
parent.seek(tp, 0)
found["parent again"] = read(parent)
parent.close()
print(json.dumps(found))
"""


def test_parent_and_child_both_read_after_a_fork(broker: Cluster, topics: Topics) -> None:
    (tp,) = topics.create()
    topics.fill(tp, 10)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap_servers, tp.topic],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"parent": 10, "child": 10, "parent again": 10}
