"""``mirror run`` as a whole: time, and CPU by the processes that spend it.

    python tests/benchmarks/bench_run.py

MIRROR_BENCH_RECORDS (default 2,000,000) events of at least 1,000 bytes, lz4, in 4 partitions, between two sandbox
clusters, compared by another client afterwards. Results: a table, and ``results-run.json`` beside this file.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from mirror.cli.commands.demo import DEMO_CONFIG
from mirror.sandbox import copy_verifier, demo_data
from mirror.sandbox.cluster import Cluster

RECORDS: Final = int(os.environ.get("MIRROR_BENCH_RECORDS", "2000000"))
RESULTS: Final = Path(__file__).with_name("results-run.json")
ROLES: Final = {
    "copying workers (Python)": ("pyspark.worker",),
    "driver's script (Python)": ("replicate.py",),
    "Spark (JVM)": ("org.apache.spark",),
}
_EVERY_S: Final = 0.1


class CpuMeter:
    """CPU seconds of a process tree by role; a process that ends counts with what it was last seen to have used."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._seen: dict[int, tuple[str, float, int]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                times, memory = process.cpu_times(), process.memory_info().rss
                role = _role(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            _, _, most = self._seen.get(process.pid, ("", 0.0, 0))
            self._seen[process.pid] = (role, times.user + times.system, max(most, memory))

    def stop(self) -> dict[str, tuple[float, float]]:
        """Role -> (CPU seconds, largest resident size of one of its processes in MB)."""
        self._done.set()
        self._thread.join()
        found: dict[str, tuple[float, float]] = {}
        for role, cpu, memory in self._seen.values():
            total, most = found.get(role, (0.0, 0.0))
            found[role] = (total + cpu, max(most, memory / 1e6))
        return found


def _role(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    for role, signs in ROLES.items():
        if process.name().startswith("java") == role.endswith("(JVM)") and any(sign in line for sign in signs):
            return role
    return "other"


def run(source: str, target: str, report: Path) -> dict[str, Any]:
    """One ``mirror run``, measured."""
    environment = {
        **os.environ,
        "MIRROR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS": source,
        "MIRROR_CLUSTERS__TARGET__BOOTSTRAP_SERVERS": target,
    }
    command = [sys.executable, "-m", "mirror.cli", "run", "--config", str(DEMO_CONFIG), "--report-dir", str(report)]
    began = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        meter = CpuMeter(psutil.Process(child.pid))
        status = child.wait()
    seconds = time.monotonic() - began
    partitions = json.loads((report / "summary.json").read_text(encoding="utf-8"))["flows"][0]["partitions"]
    size = sum(one["bytes"] for one in partitions)
    return {
        "exit": status,
        "records": sum(one["records"] for one in partitions),
        "batches": sum(one["batches"] for one in partitions),
        "gigabytes": size / 1e9,
        "seconds": seconds,
        "copy_seconds": max(one["seconds"] for one in partitions),
        "cpu_seconds": {role: cpu for role, (cpu, _) in meter.stop().items()},
        "peak_rss_mb": {role: memory for role, (_, memory) in meter.stop().items()},
    }


def main() -> None:
    """Make the data, run, compare, report."""
    console = Console()
    with Cluster() as source, Cluster() as target, tempfile.TemporaryDirectory() as report:
        console.print(f"making {RECORDS:,} events")
        demo_data.produce_orders(source.bootstrap_servers, "orders", records=RECORDS, size=1000)
        result = run(source.bootstrap_servers, target.bootstrap_servers, Path(report))
        console.print("comparing both sides with another client")
        verdict = copy_verifier.compare(source.bootstrap_servers, "orders", target.bootstrap_servers, "source.orders")
    result |= {"equal": verdict.equal, "cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    table = Table(title=f"mirror run: {result['records']:,} records, {result['gigabytes']:.2f} GB on the wire")
    for column in ("who", "CPU s", "CPU s per GB", "peak RSS MB"):
        table.add_column(column, justify="left" if column == "who" else "right")
    for role, cpu in sorted(result["cpu_seconds"].items()):
        table.add_row(role, f"{cpu:.1f}", f"{cpu / result['gigabytes']:.1f}", f"{result['peak_rss_mb'][role]:.0f}")
    console.print(table)
    console.print(
        f"whole run {result['seconds']:.1f} s, copying {result['copy_seconds']:.1f} s; equal: {verdict.equal}"
    )
    if not verdict.equal or result["exit"]:
        raise SystemExit(f"exit status {result['exit']}, {verdict.difference}")


if __name__ == "__main__":
    main()
