"""What the offset index costs a copy: CPU with and without it, one after the other in one process. Real brokers.

    PYTHONPATH=. python tests/benchmarks/bench_offset_copies.py [--records 300000] [--rounds 5]

The kinds: ``plain`` (batches of 100 records, passed on), ``small`` (batches of 10, merged) and ``transactional``
(source transactions of 100 records). Each copy is of the whole topic into a topic of its own, under a flow of its own,
exactly once by "auto" and by transactions. Without the index, nothing is gathered and nothing written. Prints the
medians of the CPU times of the process, and of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from mirror.client import Admin, NewTopic, Producer, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.offsets.offset_topic import OffsetKeeper
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from tests.copying.writers import batch_of, made

_KINDS: Final = ("plain", "small", "transactional")
_WAYS: Final = ("auto", "transactions")
_NUMBERS: Final = itertools.count()


def write(servers: str, kind: str, records: int) -> None:
    """Write the records of one topic, all with the same times: how old they are decides about the way."""
    count = 10 if kind == "small" else 100
    now_ms = int(time.time() * 1000)
    tp = TopicPartition(kind, 0)
    options = {"bootstrap.servers": servers, "buffer.memory": 100 << 20}
    if kind == "transactional":
        options["transactional.id"] = "bench"
    with Producer(options) as producer:
        if kind == "transactional":
            producer.init_transactions()
        sent = []
        for first in range(0, records, count):
            batch = batch_of([one._replace(time_ms=now_ms) for one in made(count, first=first, size=100)])
            if kind == "transactional":
                producer.begin_transaction()
            sent.append(producer.send_batch(tp, batch))
            if kind == "transactional":
                producer.commit_transaction()
        for future in sent:
            future.result(timeout=60)


@contextmanager
def without_index() -> Iterator[None]:
    """Gather and write nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("append", "skip_to"):
            patch.setattr(AppendedExtents, name, lambda *_: None)
        patch.setattr(OffsetKeeper, "write", lambda *_: True)
        yield


def copy_s(source: Cluster, target: Cluster, kind: str, way: str) -> float:
    """Copy the topic; return the CPU time of the process."""
    flow = f"bench{next(_NUMBERS)}"
    with Admin({"bootstrap.servers": target.bootstrap_servers}) as admin:
        compact = {"cleanup.policy": "compact"}
        own = [NewTopic(name, 1, 1, configs=compact) for name in (topic_of(flow), offset_topic_of(flow))]
        admin.create_topics([NewTopic(flow, 1, 1), *own])
    with Admin({"bootstrap.servers": source.bootstrap_servers}) as admin:
        cluster_id = str(admin.describe_cluster().cluster_id)
        topic_id = str(admin.describe_topics([kind])[kind].topic_id)
        end = next(iter(admin.list_offsets({TopicPartition(kind, 0): -1}).values())).offset
    copied = Range(
        flow=flow,
        topic=kind,
        target_topic=flow,
        partition=0,
        start=0,
        end=end,
        source_cluster_id=cluster_id,
        topic_id=topic_id,
    )
    began = time.process_time()
    (result,) = copy_ranges(
        [copied],
        source_options={"bootstrap.servers": source.bootstrap_servers},
        target_options={"bootstrap.servers": target.bootstrap_servers},
        policy=CopyPolicy(exactly_once=True, exactly_once_by=way),
    )
    took = time.process_time() - began
    if result.outcome is not Outcome.COMPLETE:
        raise SystemExit(f"{kind}: {result}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with Cluster(1) as source, Cluster(1) as target:
        with Admin({"bootstrap.servers": source.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(kind, 1, 1) for kind in _KINDS])
        for kind in _KINDS:
            write(source.bootstrap_servers, kind, arguments.records)
        sys.stdout.write(f"{'':30} {'with, s':>9} {'without, s':>11} {'ratio':>7}\n")
        for kind, way in itertools.product(_KINDS, _WAYS):
            copy_s(source, target, kind, way)
            found = []
            for _ in range(arguments.rounds):
                with_index = copy_s(source, target, kind, way)
                with without_index():
                    found.append((with_index, copy_s(source, target, kind, way)))
            medians = [statistics.median(column) for column in zip(*found, strict=True)]
            ratio = statistics.median(one / other for one, other in found)
            sys.stdout.write(f"{f'{kind}, {way}':30} {medians[0]:>9.3f} {medians[1]:>11.3f} {ratio:>7.3f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
