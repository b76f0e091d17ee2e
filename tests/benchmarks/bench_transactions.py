"""A thousand transactional producers in one process: commits a second, their latency, connections, threads, memory.

    python tests/benchmarks/bench_transactions.py

Each producer has its own transactional id and partition, and makes the mirror's transactions: a batch of 10 KB, the
progress as a group's offset, the commit. On one broker, and on three with three replicas of everything, under
transaction versions 1 and 2 (KIP-890), by ``connections.per.broker``. BENCH_PRODUCERS (default 1000), BENCH_POOLS
(default 1,4,16), BENCH_SECONDS of each measurement (default 2). Writes results-transactions.json beside this file.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mirror.client import Admin, NewTopic
from mirror.sandbox.cluster import Cluster

HERE: Final = Path(__file__).parent
CLIENT: Final = HERE / "transaction_clients.py"
TOPIC: Final = "bench"
BROKERS: Final = (1, 3)
VERSIONS: Final = (1, 2)
ONE_RUN_WITHIN_S: Final = 300.0

Figures = dict[str, Any]


def run_client(servers: str, producers: int, pool: int, seconds: float) -> Figures:
    """One process of producers."""
    command = [sys.executable, CLIENT, servers, TOPIC, producers, pool, seconds]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=ONE_RUN_WITHIN_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{producers} producers with {pool} connections a broker failed:\n{done.stderr}")
    result: Figures = json.loads(done.stdout)
    return result


def brokers_cpu_s(cluster: Cluster) -> float:
    """User and system time of the brokers so far."""
    times = [psutil.Process(pid).cpu_times() for pid in cluster.pids.values()]
    return float(sum(one.user + one.system for one in times))


def on_one_cluster(
    brokers: int, version: int, producers: int, pools: Sequence[int], seconds: float, progress: Progress
) -> list[Figures]:
    """Every pool size, in any order, after a first run that warms the brokers."""
    found = []
    bar = progress.add_task(f"{brokers} brokers, version {version}", total=len(pools) + 1)
    with Cluster(brokers, features={"transaction.version": version}, on_progress=progress.console.print) as cluster:
        servers = cluster.bootstrap_servers
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, producers, brokers)])
        run_client(servers, producers, max(pools), 1)
        progress.advance(bar)
        for pool in random.sample(pools, len(pools)):
            before = brokers_cpu_s(cluster)
            result = run_client(servers, producers, pool, seconds)
            result["brokers_cpu_ms_per_commit"] = (brokers_cpu_s(cluster) - before) * 1000 / result["commits"]
            found.append({"brokers": brokers, "transaction_version": version, "pool": pool, **result})
            progress.advance(bar)
        if (brokers, version) == (BROKERS[0], VERSIONS[-1]):
            found[-1]["memory"] = run_client(servers, producers, max(pools), 0)
    return sorted(found, key=lambda one: int(one["pool"]))


def table(runs: Sequence[Mapping[str, Any]], title: str) -> Table:
    """A line for each run."""
    found = Table(title=title)
    for column in ("brokers, version, pool", "few: /s", "p50, p99 ms", "all: /s", "p50, p99 ms"):
        found.add_column(column, justify="right", no_wrap=True)
    found.add_column("CPU ms", justify="right")
    found.add_column("brokers' ms", justify="right")
    for run in runs:
        found.add_row(
            ", ".join(str(run[key]) for key in ("brokers", "transaction_version", "pool")),
            *(cell for key in ("calm", "crowd") for cell in _speed(run[key])),
            f"{run['crowd']['cpu_ms_per_commit']:.2f}",
            f"{run['brokers_cpu_ms_per_commit']:.1f}",
        )
    return found


def _speed(one: Mapping[str, float]) -> tuple[str, str]:
    return f"{one['commits_per_s']:,.0f}", f"{one['p50_ms']:,.0f}, {one['p99_ms']:,.0f}"


def main() -> None:
    """Measure, print, and write the file."""
    producers = int(os.environ.get("BENCH_PRODUCERS", "1000"))
    pools = [int(word) for word in os.environ.get("BENCH_POOLS", "1,4,16").split(",")]
    seconds = float(os.environ.get("BENCH_SECONDS", "2"))
    console = Console()
    runs: list[Figures] = []
    with Progress(console=console) as progress:
        for brokers in BROKERS:
            for version in VERSIONS:
                runs += on_one_cluster(brokers, version, producers, pools, seconds, progress)
    title = f"{producers} transactional producers: 1 in 50 of them under way, then all; CPU of a commit"
    console.print(table(runs, title))
    memory = next(run["memory"] for run in runs if "memory" in run)
    resident = [run["rss_kb_per_producer"] for run in runs]
    sockets = {pool: max(max(run["connections"].values()) for run in runs if run["pool"] == pool) for pool in pools}
    console.print("connections a broker, by pool size:", *(f"{pool}: {most}" for pool, most in sockets.items()))
    console.print(f"threads of the process: {max(run['system_threads'] for run in runs)}")
    console.print(
        f"memory per producer: {memory['kb_initialized']:.1f} KB initialized, {memory['kb_after_transaction']:.1f} KB "
        f"after a transaction (allocated by Python); resident {min(resident):.0f} to {max(resident):.0f} KB"
    )
    result = {
        "producers": producers,
        "seconds": seconds,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "runs": runs,
    }
    (HERE / "results-transactions.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
