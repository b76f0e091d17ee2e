"""``mirror demo``: start two clusters on this machine, copy between them, and verify the copy with another client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Never

import typer

from mirror import sandbox
from mirror.cli.options import AsJson, ReportDir
from mirror.config.load import load
from mirror.errors import SandboxError
from mirror.sandbox.cluster import Cluster
from mirror.spark.driver.job_options import CONFIG, DEFAULT_REPORT_DIR

DEMO_CONFIG: Final = Path(sandbox.__file__).with_name("demo.toml")
_TOPIC: Final = "orders"
_TARGET_TOPIC: Final = "source.orders"
_STOP_TIMEOUT_S: Final = 30.0

# Not MIRROR_CONFIG: it names clusters of the user's own, and the demo copies between those that it starts.
Config = Annotated[Path, typer.Option(CONFIG.name, readable=False, help=CONFIG.help, show_default="that of the demo")]


def demo(
    config: Config = DEMO_CONFIG,
    records: Annotated[int, typer.Option("--records", min=1, help="Order events to generate and copy.")] = 200_000,
    size: Annotated[int, typer.Option("--size", min=0, help="Minimum size of an event's value in bytes.")] = 0,
    report_dir: ReportDir = DEFAULT_REPORT_DIR,
    as_json: AsJson = False,
) -> None:
    """Start two clusters, generate order events, copy them with Spark, and compare both sides with another client.

    With --json the command prints at the end the number of equal records, and the content of summary.json.

    Exit status: 0 both sides are equal, otherwise that of the copy, or 1.
    """
    try:
        # Only the demo needs confluent-kafka, so an installation for production does not have it.
        from mirror.sandbox import copy_verifier, demo_data
    except ImportError as error:
        raise SandboxError(
            f"the demo verifies its copy with confluent-kafka, which `make install` installs ({error})"
        ) from error
    load(config, environ=_environment("source:9092", "target:9092"))  # a wrong one is refused before anything starts
    started = time.monotonic()
    with _termination_raises(), _clusters() as (source, target):
        _print(f"generating {records:,} order events in topic {_TOPIC!r} ({source})")
        # The last event is of now: old records are copied another way than those that people usually have.
        first_ms = int(time.time() * 1000) - records * demo_data.INTERVAL_MS
        demo_data.produce_orders(source, _TOPIC, records=records, size=size, first_ms=first_ms)
        summary = _copy(config, report_dir, source, target, as_json=as_json)
        _print("reading both sides with confluent-kafka: keys, values, headers, timestamps, order")
        verdict = copy_verifier.compare(source, _TOPIC, target, _TARGET_TOPIC)
        if as_json:
            comparison = {"equal": verdict.equal, "records": verdict.records, "difference": verdict.difference}
            print(json.dumps({**comparison, **json.loads(summary)}, indent=2))
        if not verdict.equal:
            raise SandboxError(f"the copy differs: {verdict.difference}")
        _print(f"equal: all {verdict.records:,} records")
        _print(f"report for a browser: {report_dir / 'report.html'}; for programs: {report_dir / 'summary.json'}")
    _print(f"both clusters stopped, their data deleted; {time.monotonic() - started:.0f} s in all")


@contextlib.contextmanager
def _clusters() -> Iterator[tuple[str, str]]:
    """Start two clusters and yield their addresses, source and target; stop and delete them when the block ends."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for name in ("source", "target"):
            _print(f"starting cluster {name!r}")
            addresses.append(stack.enter_context(Cluster()).bootstrap_servers)
        yield addresses[0], addresses[1]


def _copy(config: Path, report_dir: Path, source: str, target: str, *, as_json: bool) -> str:
    """Run `mirror run` as a user would, and with ``as_json`` return its output.

    Exits with its exit status if that is not 0.
    """
    arguments = ["run", "--config", str(config), "--report-dir", str(report_dir), *(["--json"] if as_json else [])]
    _print(f"mirror {' '.join(arguments)}")
    command = [sys.executable, "-m", "mirror.cli", *arguments]
    child = subprocess.Popen(
        command, env=_environment(source, target), stdout=subprocess.PIPE if as_json else None, text=True
    )
    try:
        printed, _ = child.communicate()
    except BaseException:
        # Ctrl-C has reached the child, too, but SIGTERM has not. The child needs time to end Spark.
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_STOP_TIMEOUT_S)
        child.kill()
        child.wait()
        raise
    if child.returncode:
        if as_json:
            print(printed, end="")
        raise typer.Exit(child.returncode)
    return printed or ""


def _environment(source: str, target: str) -> dict[str, str]:
    """Return the environment in which the configuration has these addresses."""
    return {
        **os.environ,
        "MIRROR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS": source,
        "MIRROR_CLUSTERS__TARGET__BOOTSTRAP_SERVERS": target,
    }


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Make SIGTERM unwind the stack as Ctrl-C does, so that the clusters are stopped."""

    def unwind(number: int, _: FrameType | None) -> Never:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(text: str) -> None:
    print(f"mirror demo: {text}", file=sys.stderr, flush=True)
