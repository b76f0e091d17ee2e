"""Measures a stream of many partitions: its latency, its pauses, its recovery from kills, and its CPU when idle.

    PYTHONPATH=. python tests/campaign/measurements/stream.py [--partitions 300] [--rate 150] [--seconds 900]
        [--kill worker,executor,jvm,driver,all] [--executors 0] [--idle 60] [--counters] [--failure] [--line LINE ...]
        [--copier mirror] [--output FILE]

`mirror stream` as it comes (or another stream of bench_latency.py: ``--copier``) copies one topic between two clusters
of one broker each. ``rate`` records of 100 bytes a second are spread evenly over the partitions, of which at most a
thousand are read at the target. It begins to count
once no record has been late for 10 s, where late is: not at the target's reader of committed records a second after it
was produced. In turn:

- for ``seconds``: percentiles of the latency in ms, the longest one, and the longest time without any record
  (``pause_ms``); with ``--counters``, by how much the driver's counter of records was late at most
  (``counters_late_s``);
- each ``kill`` (SIGKILL): ``worker``, the Python process of a task that has used the most CPU lately; ``executor``, the
  JVM of one (needs ``--executors``, which starts a standalone cluster with so many, each with a core); ``jvm``, the
  driver's; ``driver``, its Python script; ``all``, every process of the stream. If the command ends, it is started
  again at once, as a supervisor would (``exited_s`` says when). ``caught_up_s`` is from the kill until the last late
  record has arrived, ``pause_s`` the longest time without any record, ``late`` the number of late records;
- for ``idle`` seconds without records: the CPU seconds a second, by role of the command's processes (those of a
  standalone cluster's executors are not among them), and of both brokers;
- with ``--failure``, a record that is larger than what the target takes comes, and ``failure_seen_s`` later the stream
  prints that its partition is not copied.

Another client counts the records that are missing and doubled in the end. The exit status is 1 if there are some. The
figures replace those of the same arguments in ``build/stream.json``, or the file of ``--output``. ``--line`` adds a
line to the flow's configuration. Variables of the environment whose names begin with ``MIRROR_JOB_`` reach the stream,
and are part of the arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from mirror.sandbox.ports import HOST, free_ports
from tests import jvm
from tests.benchmarks.bench_latency import COPY, STREAMS, TOPIC, Feeding, Load, Reading, fed
from tests.benchmarks.bench_new_topics import HEAP
from tests.benchmarks.side_by_side.metering import Meter
from tests.e2e.site import command_of, is_forked
from tests.e2e.standalone import SECURED, Standalone, standalone

CHECKOUT: Final = Path(__file__).parents[3]
RESULTS: Final = CHECKOUT / "build/stream.json"
KILLS: Final = ("worker", "executor", "jvm", "driver", "all")
OURS: Final = "mirror"
MOST_READ: Final = 1_000
"""The reader has no fetch sessions: each of its requests names all its partitions, and with 10,000 it was late by
itself."""
SETTLED_S: Final = 10.0
SETTLES_WITHIN_S: Final = 400.0
LATE_MS: Final = 1_000.0
EXITS_WITHIN_S: Final = 90.0
FAILS_WITHIN_S: Final = 120.0
_BUSY_S: Final = 10.0
"""So long it is measured which worker copies: one that has imported everything and is idle has used more CPU in all."""
_POLL_S: Final = 0.25
_SET: Final = AlterConfigOpType.SET
_WORKER: Final = "pyspark.worker"
_SCRIPT: Final = "stream.py"
_EPOCH_MS: Final = 180_000
_COUNTER: Final = re.compile(r"^mirror_copied_records_total\{[^}]*\} (\S+)", re.MULTILINE)


class Stream:
    """`mirror stream` with its processes; started again after a kill that has ended it."""

    def __init__(self, load: Load, lines: Sequence[str], executors: Standalone | None, port: int | None) -> None:
        """``port``: where the driver serves its metrics; None: nowhere."""
        self.executors: Final = executors
        self._folder: Final = load.folder
        self._environ = dict(os.environ)
        if port is not None:
            self._environ |= {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": HOST}
            self._environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(port)
        if executors is not None:
            self._environ |= {
                "SPARK_CONF_DIR": str(spark_settings(self._folder, executors)),
                "PYTHONPATH": str(CHECKOUT),
            }
        flow = ["[flows.f]", 'source = "a"', 'target = "b"', f'topics = ["{TOPIC}"]', *lines]
        clusters = [
            f'[clusters.{name}]\n"bootstrap.servers" = "{at}"' for name, at in (("a", load.source), ("b", load.target))
        ]
        (self._folder / "mirror.toml").write_text("\n".join([*clusters, *flow]) + "\n", encoding="utf-8")
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the command."""
        master = "local[2,4]" if self.executors is None else self.executors.url
        command = [sys.executable, "-m", "mirror.cli", "stream", "--config", str(self._folder / "mirror.toml")]
        command += ["--report-dir", str(self._folder / "report"), "--master", master]
        with (self._folder / "output.txt").open("ab") as output:
            self._child = subprocess.Popen(command, stdout=output, stderr=output, env=self._environ)

    @property
    def pid(self) -> int:
        """The id of the command's process."""
        assert self._child is not None
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self._child is not None and self._child.poll() is None

    def output(self) -> str:
        """Return what it has printed."""
        return (self._folder / "output.txt").read_text(errors="replace")

    def last_words(self) -> str:
        """Return the end of its output."""
        return " | ".join(self.output().splitlines()[-3:])

    def processes(self) -> list[psutil.Process]:
        """Return the command's processes, and those of the executors."""
        roots = list(self.executors.executors()) if self.executors is not None else []
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            roots.append(psutil.Process(self.pid))
        for root in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [root, *root.children(recursive=True)]
        return found

    def victims(self, kill: str) -> list[psutil.Process]:
        """Return the processes that ``kill`` names. Raises AssertionError if there are none."""
        processes = self.processes()
        if kill == "worker":
            workers = [one for one in processes if is_forked(one, _WORKER)]
            before = {one: _cpu_s(one) for one in workers}
            time.sleep(_BUSY_S)
            found = sorted(workers, key=lambda one: _cpu_s(one) - before[one])[-1:]
        elif kill == "executor":
            found = [] if self.executors is None else self.executors.executors()[:1]
        elif kill == "all":
            found = processes
        else:
            own = [one for one in processes if one not in (self.executors.executors() if self.executors else ())]
            scripts = [one for one in own if any(word.endswith(_SCRIPT) for word in command_of(one))]
            javas = [one for one in own if "java" in (command_of(one) or [""])[0]]
            found = javas[:1] if kill == "jvm" else [one for one in scripts if one not in javas][:1]
        assert found, f"there is no {kill} to kill among {[' '.join(command_of(one))[:90] for one in processes]}"
        return found

    def stop(self) -> None:
        """End it in order, or after a minute at once."""
        if self._child is None:
            return
        family = self.processes()
        self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(60)
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._child.wait()


def spark_settings(folder: Path, executors: Standalone) -> Path:
    """Write Spark's settings for executors of one core each below ``folder``, and return their folder."""
    count = len(executors.workers)
    settings: dict[str, object] = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.cores": 1,
        "spark.cores.max": count,
        "spark.default.parallelism": count,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(jvm.SPARK),
        "spark.executorEnv.PYTHONPATH": CHECKOUT,
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        **SECURED,
    }
    conf = folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8"
    )
    return conf


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


class Watch:
    """What the producer has sent, and the reader has: which records are late."""

    def __init__(self, feeding: Feeding, reading: Reading) -> None:
        self._feeding: Final = feeding
        self._reading: Final = reading
        self._last = [-1] * feeding.partitions
        """The highest number that has come of each partition: a copy keeps the order."""
        self._read = 0

    def oldest_s(self) -> float:
        """Return the age of the oldest record that has not come; 0 if all have."""
        numbers = self._reading.numbers
        until = len(numbers)
        for number in numbers[self._read : until]:
            partition = number % self._feeding.partitions
            self._last[partition] = max(self._last[partition], number)
        self._read = until
        sent_at, count = self._feeding.sent_at, self._feeding.partitions
        sent = len(sent_at)
        awaited = (p if self._last[p] < 0 else self._last[p] + count for p in self._reading.read)
        first = min((number for number in awaited if number < sent), default=None)
        return 0.0 if first is None else time.monotonic() - sent_at[first]

    def settle(self, stream: Stream | None, restarts: bool = False) -> float | None:
        """Wait until nothing has been late for :data:`SETTLED_S`; return when the ``stream`` has ended, if it has.

        One that has ended is started again, if it ``restarts``. Raises AssertionError if it takes too long.
        """
        exited = None
        until, since = time.monotonic() + SETTLES_WITHIN_S, time.monotonic()
        while time.monotonic() - since < SETTLED_S:
            if stream is not None and not stream.running:
                assert restarts, f"the stream has ended: {stream.last_words()}"
                assert exited is None, f"the stream has ended again: {stream.last_words()}"
                exited = time.monotonic()
                stream.start()
            now = time.monotonic()
            assert now < until, f"records are late {SETTLES_WITHIN_S} s later: {stream and stream.last_words()}"
            if self.oldest_s() * 1000 >= LATE_MS:
                since = now
            time.sleep(_POLL_S)
        return exited

    def arrivals(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return (monotonic seconds, latency in ms) of what has come in that time."""
        return [(at, ms) for at, _, ms in list(self._reading.found) if since <= at <= until]


class Counters(threading.Thread):
    """Reads the driver's counter of records twice a second."""

    def __init__(self, port: int) -> None:
        super().__init__(name="counters", daemon=True)
        self.over = threading.Event()
        self.samples: Final = list[tuple[float, int]]()
        self._port: Final = port

    def run(self) -> None:
        while not self.over.wait(0.5):
            with contextlib.suppress(OSError, http.client.HTTPException):
                at = time.monotonic()
                connection = http.client.HTTPConnection(HOST, self._port, timeout=5)
                try:
                    connection.request("GET", "/metrics")
                    text = connection.getresponse().read().decode()
                finally:
                    connection.close()
                self.samples.append((at, int(sum(map(float, _COUNTER.findall(text))))))

    def late_s(self, arrived: Sequence[float], since: float, until: float) -> float | None:
        """Return how late the counter was at most; ``arrived``: when each record came, in order."""
        late = [
            at - arrived[count] if count < len(arrived) and arrived[count] < at else 0.0
            for at, count in self.samples
            if since <= at <= until
        ]
        return round(max(late), 1) if late else None


def latencies(arrivals: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Percentiles and the longest in ms, and the longest time without a record."""
    found = sorted(ms for _, ms in arrivals)
    shown = {f"p{q}": found[min(len(found) - 1, int(len(found) * q / 100))] for q in (50, 90, 99, 99.9)}
    pauses = [after[0] - before[0] for before, after in itertools.pairwise(arrivals)]
    figures = shown | {"longest_ms": found[-1], "pause_ms": max(pauses, default=0.0) * 1000}
    return {name: round(value, 1) for name, value in figures.items()} | {"records": len(found)}


def recovery(arrivals: Sequence[tuple[float, float]], killed: float) -> dict[str, float]:
    """What a kill has cost, by what has come since."""
    late = [at for at, ms in arrivals if ms >= LATE_MS]
    times = [killed, *(at for at, _ in arrivals)]
    pause_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
    caught_up_s = late[-1] - killed if late else 0.0
    return {"caught_up_s": round(caught_up_s, 2), "pause_s": round(pause_s, 2), "late": len(late)}


def kill_once(kill: str, stream: Stream, watch: Watch) -> dict[str, float | None]:
    victims = stream.victims(kill)
    killed = time.monotonic()
    for one in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if kill in {"jvm", "driver", "all"}:  # a supervisor waits for the end, which may come late
        until = killed + (EXITS_WITHIN_S if kill != "jvm" else 10.0)
        while stream.running and time.monotonic() < until:
            time.sleep(0.05)
    exited = time.monotonic() if not stream.running else None
    if exited is not None:
        stream.start()
    exited = watch.settle(stream, restarts=exited is None) or exited
    found = recovery(watch.arrivals(killed, time.monotonic()), killed)
    return {**found, "exited_s": None if exited is None else round(exited - killed, 2)}


def idle_cpu(meter: Meter, seconds: float) -> dict[str, float]:
    """CPU seconds a second, by role and broker."""
    first = meter.take_sample()
    time.sleep(seconds)
    last = meter.take_sample()
    took = last.at - first.at
    used = {f"{role}_cpu": cpu - first.cpu.get(role, 0.0) for role, cpu in last.cpu.items()}
    used |= {f"{side}_broker_cpu": cpu - first.brokers[side] for side, cpu in last.brokers.items()}
    return {name: round(seconds / took, 4) for name, seconds in used.items()}


def failure_seen_s(load: Load, stream: Stream) -> float:
    """Produce a record that the target does not take; return after how many seconds the stream says so."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, COPY)
    resource.add_incremental_config(ConfigEntry("max.message.bytes", "50000", incremental_operation=_SET))
    admin = AdminClient({"bootstrap.servers": load.target})
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(timeout=60)
    producer = Producer({"bootstrap.servers": load.source, "linger.ms": 0})
    producer.produce(TOPIC, os.urandom(100_000), partition=0)
    assert producer.flush(60) == 0
    began = time.monotonic()
    while f"{TOPIC}-0 not copied" not in stream.output():
        assert time.monotonic() < began + FAILS_WITHIN_S, f"no failure is seen: {stream.last_words()}"
        time.sleep(_POLL_S)
    return round(time.monotonic() - began, 1)


@contextlib.contextmanager
def _started(asked: argparse.Namespace, load: Load) -> Iterator[tuple[Stream | None, int, int | None]]:
    """The stream of ours, the id of the copier's process, and the port of its metrics, if there are some."""
    if asked.copier != OURS:
        with STREAMS[asked.copier](load) as pid:
            yield None, pid, None
        return
    port = free_ports(1)[0] if asked.counters else None
    with contextlib.ExitStack() as stack:
        executors = None
        if asked.executors:
            executors = stack.enter_context(standalone(load.folder, asked.executors))
        stream = Stream(load, asked.line, executors, port)
        stack.callback(stream.stop)
        stream.start()
        yield stream, stream.pid, port


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with fed(asked.rate, asked.partitions, HEAP, MOST_READ) as site:
        load = Load(
            site.source.bootstrap_servers, site.target.bootstrap_servers, site.folder, asked.partitions, _EPOCH_MS
        )
        watch = Watch(site.feeding, site.reading)
        began = time.monotonic()
        with _started(asked, load) as (stream, pid, port):
            counters = None if port is None else Counters(port)
            if counters is not None:
                counters.start()
            watch.settle(stream)
            found["settled_s"] = round(time.monotonic() - began - SETTLED_S, 1)
            since = time.monotonic()
            time.sleep(asked.seconds)
            until = time.monotonic()
            found["latency"] = latencies(watch.arrivals(since, until))
            if counters is not None:
                counters.over.set()
                arrived = [at for at, _, _ in list(site.reading.found)]
                found["counters_late_s"] = counters.late_s(arrived, since, until)
            _show(found)
            for kill in asked.kill:
                assert stream is not None
                found[kill] = kill_once(kill, stream, watch)
                _show({kill: found[kill]})
            appended = site.stop()
            time.sleep(2.0)
            brokers = {"source": site.source.pids.values(), "target": site.target.pids.values()}
            if asked.idle:
                found["idle"] = idle_cpu(
                    Meter(pid if stream is None else stream.pid, brokers, roles=stream is not None), asked.idle
                )
            if asked.failure:
                assert stream is not None
                found["failure_seen_s"] = failure_seen_s(load, stream)
        counts = Counter(site.reading.numbers)
    return {**found, "missing": appended - len(counts), "doubled": counts.total() - len(counts)}


def _show(found: object) -> None:
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def _kills(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := set(names) - set(KILLS):
        msg = f"no such process: {', '.join(sorted(unknown))}; there are {', '.join(KILLS)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--rate", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--kill", type=_kills, default=[], metavar="NAME,...", help=f"of {', '.join(KILLS)}")
    parser.add_argument("--executors", type=int, default=0)
    parser.add_argument("--idle", type=float, default=60)
    parser.add_argument("--counters", action="store_true")
    parser.add_argument("--failure", action="store_true")
    parser.add_argument("--line", action="append", default=[])
    parser.add_argument("--copier", choices=sorted({OURS, *STREAMS}), default=OURS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    if "executor" in asked.kill and not asked.executors:
        parser.error("--kill executor needs --executors")
    if asked.copier != OURS and (asked.kill or asked.executors or asked.counters or asked.failure or asked.line):
        parser.error(f"--kill, --executors, --counters, --failure and --line need --copier {OURS}")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the stream and its brokers are stopped in order
    values = {name: value for name, value in vars(asked).items() if name != "output"}
    values |= {name: value for name, value in os.environ.items() if name.startswith("MIRROR_JOB_")}
    found = measure(asked)
    _show(found)
    results = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    results[json.dumps(values, sort_keys=True)] = found
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if found["missing"] or found["doubled"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
