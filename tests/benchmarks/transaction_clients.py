"""Many transactional producers in one process: ``python transaction_clients.py SERVERS TOPIC PRODUCERS POOL SECONDS``.

Each has its own partition and a transaction as the mirror makes them: a batch of records, the progress, the commit. One
application thread drives all of them, by the calls that do not wait. At first one in 50 of them has a transaction under
way, for SECONDS, which is what a latency is to be read from; then all of them at once.

Prints a line of JSON. The time of a commit runs from ``commit_transaction_async`` to its outcome: it waits for the
acknowledgement of the batch and of the offsets.
"""

from __future__ import annotations

import collections
import gc
import json
import queue
import resource
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from mirror.client import Producer, TopicPartition
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch

RECORDS: Final = 10
RECORD_BYTES: Final = 1_000
GROUPS: Final = 16
CALM: Final = 50
_WITHIN_MS: Final = 120_000


def cpu_s() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _template() -> bytes:
    builder = BatchBuilder("none", RECORDS * (RECORD_BYTES + 100))
    for _ in range(RECORDS):
        builder.append(b"key", bytes(RECORD_BYTES), (), int(time.time() * 1000))
    return bytes(builder.build().view)


@dataclass(slots=True)
class Measure:
    """How long each commit took in seconds, and all of them together."""

    took: list[float]
    seconds: float
    cpu_s: float

    def figures(self) -> dict[str, float]:
        """Its figures."""
        cuts = statistics.quantiles(self.took, n=100)
        return {
            "commits": len(self.took),
            "commits_per_s": len(self.took) / self.seconds,
            "p50_ms": cuts[49] * 1000,
            "p99_ms": cuts[98] * 1000,
            "cpu_ms_per_commit": self.cpu_s / len(self.took) * 1000,
        }


class Swarm:
    """The producers, and what they have done."""

    def __init__(self, servers: str, topic: str, count: int, pool: int, name: str = "many") -> None:
        self._template = _template()
        self._done: queue.SimpleQueue[tuple[int, float, Future[None]]] = queue.SimpleQueue()
        self._topic = topic
        self._progress = [0] * count
        options = {"bootstrap.servers": servers, "connections.per.broker": pool}
        self._producers = [
            Producer({**options, "transactional.id": f"mirror.{name}.{topic}.{number}"}) for number in range(count)
        ]

    def init(self) -> float:
        """Fence; the seconds that it took."""
        began = time.perf_counter()
        for future in [one.init_transactions_async(timeout_ms=_WITHIN_MS) for one in self._producers]:
            future.result()
        return time.perf_counter() - began

    def begin(self, number: int) -> None:
        """One whole transaction, none of whose steps is waited for here."""
        producer, tp = self._producers[number], TopicPartition(self._topic, number)
        producer.begin_transaction()
        producer.send_batch(tp, Batch(memoryview(bytearray(self._template))), block=False)
        self._progress[number] += RECORDS
        group = f"mirror.bench.{number % GROUPS}"
        producer.send_offsets_to_transaction_async({tp: self._progress[number]}, group, timeout_ms=_WITHIN_MS)
        asked = time.perf_counter()
        outcome = producer.commit_transaction_async(timeout_ms=_WITHIN_MS)
        outcome.add_done_callback(lambda future: self._done.put((number, time.perf_counter() - asked, future)))

    def run(self, at_once: int, seconds: float) -> Measure:
        """Keep ``at_once`` transactions under way for ``seconds``, each producer in its turn."""
        line = collections.deque(range(len(self._producers)))
        took: list[float] = []
        began, used = time.perf_counter(), cpu_s()
        for _ in range(at_once):
            self.begin(line.popleft())
        running = at_once
        while running:
            number, commit_s, outcome = self._done.get()
            outcome.result()
            took.append(commit_s)
            line.append(number)
            if time.perf_counter() - began < seconds:
                self.begin(line.popleft())
            else:
                running -= 1
        elapsed = time.perf_counter() - began
        return Measure(took, elapsed, cpu_s() - used)

    def close(self) -> None:
        """All of them."""
        for producer in self._producers:
            producer.close()


def sockets(servers: str) -> Mapping[str, int]:
    """Connections by broker's address."""
    ports = {int(one.rpartition(":")[2]) for one in servers.split(",")}
    found = psutil.Process().net_connections("tcp")
    return collections.Counter(
        f"{one.raddr.ip}:{one.raddr.port}" for one in found if one.raddr and one.raddr.port in ports
    )


def resident_bytes() -> int:
    """Of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this benchmark needs Linux's /proc/self/status")


def measure(servers: str, topic: str, count: int, pool: int, seconds: float) -> dict[str, Any]:
    """Speed, connections and threads."""
    # One alone first: what the first of all costs (imports, metadata of the topic, buffers) is nobody's share.
    first = Swarm(servers, topic, 1, pool, "first")
    first.init()
    first.run(1, 0)
    before = resident_bytes()
    swarm = Swarm(servers, topic, count, pool)
    init_s = swarm.init()
    calm, crowd = swarm.run(max(1, count // CALM), seconds), swarm.run(count, seconds)
    gc.collect()
    resident = resident_bytes() - before
    result = {
        "init_s": init_s,
        "rss_kb_per_producer": resident / count / 1024,
        "commits": len(calm.took) + len(crowd.took),
        "calm": calm.figures(),
        "crowd": crowd.figures(),
        "threads": threading.active_count(),
        "system_threads": len(psutil.Process().threads()),
        "connections": sockets(servers),
    }
    swarm.close()
    first.close()
    return result


def memory(servers: str, topic: str, count: int, pool: int) -> dict[str, float]:
    """KB that a producer keeps, by what Python allocated: made and initialized, and after a transaction."""
    first = Swarm(servers, topic, 1, pool, "first")
    first.init()
    first.run(1, 0)
    gc.collect()
    tracemalloc.start()
    swarm = Swarm(servers, topic, count, pool)
    swarm.init()
    gc.collect()
    idle = tracemalloc.get_traced_memory()[0]
    swarm.run(count, 0)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    swarm.close()
    first.close()
    return {"kb_initialized": idle / count / 1024, "kb_after_transaction": used / count / 1024}


def main() -> None:
    """Run, and print the figures; SECONDS of 0 measures memory alone, as that makes everything slow."""
    servers, topic, count, pool, seconds = sys.argv[1:]
    wanted = (servers, topic, int(count), int(pool))
    result = measure(*wanted, float(seconds)) if float(seconds) else memory(*wanted)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
