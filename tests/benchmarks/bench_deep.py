"""The deep path: what decoding and encoding again costs, and what the shallow path beside it loses. No broker.

BENCH_SECONDS (default 1) for each measurement in BENCH_ROUNDS rounds (default 5), interleaved. The shallow path is a
thread that does what one costs: it asks for 1 MB, receives it, verifies and patches its 16 batches and sends them, to
a process of its own at the other end; as fast as it can, or at 100 MB/s, where each MB has its due time. It is measured
alone, beside a process that encodes (no interpreter lock in common: the fair share of the CPUs), and beside a thread
that encodes, at several switch intervals. MB and GB are decimal, of record values. Writes results-deep.json beside
this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from mirror.relay.batches.reencode import ReencodeSpec, reencode
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch, split_batches

HERE: Final = Path(__file__).parent
CODECS: Final = ("none", "lz4", "zstd", "snappy", "gzip")
SIZES: Final = (100, 1000)
SWITCH_MS: Final = (5.0, 1.0, 0.5, 0.1)
BESIDE: Final = (
    ("1 MB of 100 B", "lz4", 100, 1_000_000),
    ("1 MB of 1 KB", "lz4", 1000, 1_000_000),
    ("20 MB of 1 KB", "lz4", 1000, 20_000_000),
)
BATCHES: Final = 16
PACE: Final = 100.0
"""MB/s."""


def source(codec: str, value_bytes: int, total: int) -> Batch:
    """A batch of ``total`` bytes of values, of which about half can be saved."""
    values = random.Random(1)
    builder = BatchBuilder(codec, 2**31 - 1)
    for number in range(total // value_bytes):
        value = values.randbytes(value_bytes // 2) + b"x" * (value_bytes - value_bytes // 2)
        builder.append(b"key-%d" % number, value, (), 1_700_000_000_000 + number)
    return builder.build()


# --- what it costs


def cost(codec: str, value_bytes: int, total: int, seconds: float) -> Mapping[str, float]:
    """Records a second of CPU, CPU seconds per GB, and the most memory beside the source, as parts of the values'."""
    batch = source(codec, value_bytes, total)
    took: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not took:
        before = time.process_time()
        reencode([batch], ReencodeSpec())
        took.append(time.process_time() - before)
    tracemalloc.start()
    reencode([batch], ReencodeSpec())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    one = statistics.median(took)
    return {
        "records_per_s": batch.count / one,
        "cpu_s_per_gb": one * 1e9 / total,
        "ms": one * 1000,
        "peak": peak / total,
    }


# --- what the shallow path loses


def shallow_answer() -> bytearray:
    """About 1 MB in 16 batches."""
    return bytearray(source("none", 1000, 62_500).view) * BATCHES


def peer(fd: int) -> None:
    """The other end: an answer for every request, and a word for what comes back, until the socket is closed."""
    answer = shallow_answer()
    room = memoryview(bytearray(len(answer)))
    with socket.socket(fileno=fd) as connection, contextlib.suppress(ConnectionError):
        while connection.recv(100):
            connection.sendall(answer)
            at = 0
            while at < len(room):
                at += connection.recv_into(room[at:])
            connection.sendall(b"written")


def encode_for_ever(codec: str, value_bytes: int, total: int) -> None:
    """A process of its own that does what the thread does, until it is ended."""
    batch = source(codec, value_bytes, total)
    print("ready", flush=True)  # noqa: T201 - read by who started it
    while True:
        reencode([batch], ReencodeSpec())


class Shallow:
    """Copies as a network thread does."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray(len(shallow_answer()))
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def run(self, seconds: float, pace: float | None) -> tuple[float, float]:
        """MB/s, and the delay in ms that one in a hundred exceeds: of a copy, or behind its due time at ``pace``."""
        delays: list[float] = []
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            if pace is not None:
                due = begun + len(delays) / pace
                if now < due:
                    self._selector.select(due - now)
                now = due
            self._once()
            delays.append(time.perf_counter() - now)
        rate = len(delays) / (time.perf_counter() - begun)
        return rate, sorted(delays)[len(delays) * 99 // 100] * 1000

    def _once(self) -> None:
        self._connection.sendmsg([b"a request"])
        view = memoryview(self._buffer)
        self._receive(view)
        for number, batch in enumerate(split_batches(view)):
            assert isinstance(batch, Batch)
            batch.verify()
            batch.patch(4_711, 0, number)
        self._connection.sendmsg([view])
        self._receive(memoryview(bytearray(7)))

    def _receive(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            self._selector.select()
            at += self._connection.recv_into(view[at:])


@contextmanager
def shallow() -> Iterator[Shallow]:
    """With a peer in a process of its own."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, __file__, "peer", str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            try:
                copying = Shallow(ours)
                copying.run(0.2, None)
                yield copying
            finally:
                ours.close()
                process.terminate()


@contextmanager
def beside_a_thread(batch: Batch, switch_ms: float) -> Iterator[Callable[[], int]]:
    """``reencode`` again and again; the call gives how often so far."""
    ended, made = threading.Event(), [0]

    def encode() -> None:
        while not ended.is_set():
            reencode([batch], ReencodeSpec())
            made[0] += 1

    usual = sys.getswitchinterval()
    sys.setswitchinterval(switch_ms / 1000)
    thread = threading.Thread(target=encode)
    thread.start()
    try:
        yield lambda: made[0]
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(usual)


@contextmanager
def beside_a_process(codec: str, value_bytes: int, total: int) -> Iterator[None]:
    """The same in a process, which is ended."""
    command = [sys.executable, __file__, "encode", codec, str(value_bytes), str(total)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.terminate()


def losses(rounds: int, seconds: float, console: Console) -> dict[str, dict[str, list[float]]]:
    """What is left of the copying, and what is encoded beside it, in MB/s; and delays, in ms."""
    found: dict[str, dict[str, list[float]]] = {}

    def measure(name: str, copying: Shallow, made: Callable[[], float] = lambda: 0.0) -> None:
        result = found.setdefault(name, {})
        for pace, label in ((None, "flat out"), (PACE, f"at {PACE:.0f} MB/s")):
            before, begun = made(), time.perf_counter()
            rate, delay = copying.run(seconds, pace)
            encoded = (made() - before) / (time.perf_counter() - begun)
            for key, value in (("copied", rate), ("p99 ms", delay), ("encoded", encoded)):
                result.setdefault(f"{label}: {key}", []).append(value)

    with shallow() as copying:
        for _ in track(range(rounds), "beside the shallow path", console=console):
            measure("alone", copying)
            for label, codec, value_bytes, total in BESIDE:
                with beside_a_process(codec, value_bytes, total):
                    measure(f"{label}: a process", copying)
                batch = source(codec, value_bytes, total)
                for switch_ms in SWITCH_MS:
                    with beside_a_thread(batch, switch_ms) as made:
                        measure(f"{label}: {switch_ms} ms", copying, lambda: made() * total / 1e6)  # noqa: B023
    return found


# --- the report


def table(title: str, first: str, runs: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """Medians."""
    columns = list(dict.fromkeys(key for result in runs.values() for key in result))
    found = Table(first, title=title)
    for column in columns:
        found.add_column(column, justify="right")
    for name, result in runs.items():
        found.add_row(name, *(f"{statistics.median(result[key]):,.2f}" if key in result else "" for key in columns))
    return found


def main() -> None:
    """Measure, print, and write the file."""
    seconds = float(os.environ.get("BENCH_SECONDS", "1"))
    rounds = int(os.environ.get("BENCH_ROUNDS", "5"))
    console = Console()
    costs: dict[str, dict[str, list[float]]] = {}
    cases = [(codec, size, 1_000_000) for codec in CODECS for size in SIZES] + [
        (codec, 1000, 20_000_000) for codec in ("none", "lz4")
    ]
    for codec, size, total in track(cases * rounds, "encoding", console=console):
        name = f"{codec}, {size} B, batches of {total // 1_000_000} MB"
        for key, value in cost(codec, size, total, seconds / 2).items():
            costs.setdefault(name, {}).setdefault(key, []).append(value)
    console.print(table("one thread alone, medians", "records", costs))
    left = losses(rounds, seconds, console)
    console.print(table("the shallow path beside it, medians", "beside", left))
    result = {
        "rounds": rounds,
        "seconds": seconds,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "median": {
            part: {
                name: {key: statistics.median(values) for key, values in measured.items()}
                for name, measured in of.items()
            }
            for part, of in (("cost", costs), ("beside the shallow path", left))
        },
    }
    (HERE / "results-deep.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        peer(int(sys.argv[2]))
    elif sys.argv[1:2] == ["encode"]:
        encode_for_ever(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
