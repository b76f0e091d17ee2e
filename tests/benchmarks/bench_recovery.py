"""How long a stream that is killed takes to copy again, and to have copied all that came meanwhile.

    PYTHONPATH=. python tests/benchmarks/bench_recovery.py [--rate 1000] [--rounds 1] [--output FILE] [NAME ...]

NAME: as in bench_latency.py; by default ``mirror`` and ``mirrormaker-low-latency``, both exactly once. They take turns,
each on clusters of its own. ``rate`` records of 100 bytes a second are spread evenly over 4 partitions. 20 s after the
first record has arrived, all processes of the copier are killed (SIGKILL), and the same command is started at once, as
a supervisor would. In seconds since the kill: ``first``, when the first record came that the new processes have copied
(behind the longest pause), and ``drained``, when each partition's newest record was less than a second old. Another
client counts the records that are missing or doubled 10 s later. Results go to results-recovery.json, or to the file of
``--output``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from mirror.config.models import FlowConfig
from tests.benchmarks.bench_latency import PARTITIONS, STREAMS, WARM_S, Load, Reading, fed

RESULTS: Final = Path(__file__).with_name("results-recovery.json")
NAMES: Final = ("mirror", "mirrormaker-low-latency")
RECOVERED_WITHIN_S: Final = 400.0
"""Beyond the 300 s for which Connect may leave the tasks of a lost worker unassigned
(scheduled.rebalance.max.delay.ms)."""
AFTERWARDS_S: Final = 10.0
_CURRENT_MS: Final = 1_000.0
_PERIOD_MS: Final[int] = FlowConfig.model_fields["period_ms"].default

Arrival = tuple[float, int, float]
"""(monotonic seconds, partition, the record's age in ms)."""


def recovery(arrivals: Sequence[Arrival], killed: float, partitions: int) -> tuple[float, float] | None:
    """Return (first, drained) in seconds since ``killed``; None while a partition has no current record yet."""
    later = [arrival for arrival in arrivals if arrival[0] >= killed]
    times = [killed, *(at for at, _, _ in later)]
    pauses = [(after - before, after) for before, after in itertools.pairwise(times)]
    if not pauses:
        return None
    _, first = max(pauses)
    current: set[int] = set()
    for at, partition, age_ms in later:
        if at >= first and age_ms < _CURRENT_MS:
            current.add(partition)
            if len(current) == partitions:
                return first - killed, at - killed
    return None


def kill(root: int) -> None:
    """Kill the process ``root`` and all that it has started, by their ids."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        family = [process, *process.children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=30)


def measure(name: str, rate: int) -> dict[str, float | None]:
    with fed(rate, PARTITIONS) as site:
        source, target = site.source.bootstrap_servers, site.target.bootstrap_servers
        load = Load(source, target, site.folder, PARTITIONS, _PERIOD_MS)
        with STREAMS[name](load) as copier:
            site.await_first(name, copier)
            time.sleep(WARM_S)
            kill(copier)
            killed = time.monotonic()
        with STREAMS[name](load):
            found = _await_recovery(site.reading, killed)
            time.sleep(AFTERWARDS_S)
            appended = site.stop()
    counts = Counter(site.reading.numbers)
    first, drained = found if found is not None else (None, None)
    doubled = counts.total() - len(counts)
    return {"first": first, "drained": drained, "missing": appended - len(counts), "doubled": doubled}


def _await_recovery(reading: Reading, killed: float) -> tuple[float, float] | None:
    """None where it has not come within :data:`RECOVERED_WITHIN_S`."""
    while time.monotonic() < killed + RECOVERED_WITHIN_S:
        # Not at once: what the killed processes had written still arrives, without any pause.
        time.sleep(2.0)
        found = recovery(list(reading.found), killed, PARTITIONS)
        if found is not None:
            return found
    return None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STREAMS)}")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - STREAMS.keys():
        parser.error(f"no such stream: {', '.join(sorted(unknown))}")
    results: dict[str, list[dict[str, float | None]]] = defaultdict(list)
    for _ in range(asked.rounds):
        for name in asked.names or NAMES:
            results[name].append(measure(name, asked.rate))
            sys.stdout.write(f"{name} {json.dumps(results[name][-1])}\n")
            sys.stdout.flush()
            asked.output.write_text(
                json.dumps({"asked": vars(asked), "s": results}, indent=2, default=str) + "\n", encoding="utf-8"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
