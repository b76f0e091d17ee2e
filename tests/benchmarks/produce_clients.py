"""Ready-made batches out of memory into a topic, in a process: ``produce_clients.py SERVERS TOPIC FOLDER IN_FLIGHT``.

FOLDER has a file of batches for each partition, named by its number. Prints a line of JSON: batches, their bytes, wall
and CPU seconds from the first batch to the last acknowledgement (metadata and connecting included), and CPU seconds of
the whole process, reading the files left out.
"""

from __future__ import annotations

import gc
import itertools
import json
import resource
import sys
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path

from mirror.client import Producer, RecordMetadata, TopicPartition
from mirror.wire.records import Batch, split_batches


def cpu_s() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def load(topic: str, folder: Path) -> list[tuple[TopicPartition, Batch]]:
    """The batches of all partitions, taking turns; each a view that can be patched, and so sent, once."""
    parts = []
    for file in sorted(folder.iterdir(), key=lambda file: int(file.name)):
        tp = TopicPartition(topic, int(file.name))
        found = split_batches(memoryview(bytearray(file.read_bytes())))
        parts.append([(tp, batch) for batch in found if isinstance(batch, Batch)])
    return [one for turn in itertools.zip_longest(*parts) for one in turn if one is not None]


def main() -> None:
    """Send, and print the figures."""
    servers, topic, folder, in_flight = sys.argv[1:]
    before = cpu_s()
    batches = load(topic, Path(folder))
    loading = cpu_s() - before
    gc.freeze()  # no program has a gigabyte of batches lying ready: the collector is not to go through them
    options = {"bootstrap.servers": servers, "max.in.flight.requests.per.connection": int(in_flight)}
    with Producer(options) as producer:
        began, before = time.perf_counter(), cpu_s()
        unanswered: deque[Future[RecordMetadata]] = deque()
        for tp, batch in batches:
            unanswered.append(producer.send_batch(tp, batch))
            while unanswered[0].done() and len(unanswered) > 1:
                unanswered.popleft().result()
        for future in unanswered:
            future.result()
        seconds, used = time.perf_counter() - began, cpu_s() - before
    result = {
        "batches": len(batches),
        "bytes": sum(batch.size for _, batch in batches),
        "seconds": seconds,
        "cpu_s": used,
        "process_cpu_s": cpu_s() - loading,
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
