"""``mirror demo``: the whole path on this machine, from two empty clusters to a copy checked by another client."""

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

from mirror.cli.options import REPORT_DIR, AsJson, Config, ReportDir
from mirror.errors import SandboxError
from mirror.sandbox.cluster import Cluster

_CONFIG: Final = Path("config/demo.toml")
_TOPIC: Final = "orders"
_TARGET_TOPIC: Final = "source.orders"
_STOP_WITHIN_S: Final = 30.0


def demo(
    config: Config = _CONFIG,
    records: Annotated[int, typer.Option("--records", min=1, help="Order events to make and copy.")] = 200_000,
    size: Annotated[int, typer.Option("--size", min=0, help="Smallest size of an event's value in bytes.")] = 0,
    report_dir: ReportDir = REPORT_DIR,
    as_json: AsJson = False,
) -> None:
    """Start two clusters, make order events, copy them with Spark, and compare both sides with another client.

    With --json it prints at the end how many records are equal, and what summary.json says of the copy.

    Exit status: 0 where both sides are equal, else that of the copy, or 1.
    """
    try:
        # Not needed by the program itself, and so not there in an installation for production.
        from mirror.sandbox import copy_verifier as judge
        from mirror.sandbox import demo_data as orders
    except ImportError as error:
        raise SandboxError(f"the demo checks its copy with confluent-kafka; `make install` has it ({error})") from error
    started = time.monotonic()
    with _termination_raises(), _clusters() as (source, target):
        _say(f"making {records:,} order events in topic {_TOPIC!r} ({source})")
        orders.make(source, _TOPIC, records=records, size=size)
        summary = _copy(config, report_dir, source, target, as_json=as_json)
        _say("reading both sides with confluent-kafka: keys, values, headers, timestamps, order")
        verdict = judge.compare(source, _TOPIC, target, _TARGET_TOPIC)
        if as_json:
            judged = {"equal": verdict.equal, "records": verdict.records, "difference": verdict.difference}
            print(json.dumps({**judged, **json.loads(summary)}, indent=2))
        if not verdict.equal:
            raise SandboxError(f"the copy differs: {verdict.difference}")
        _say(f"equal: all {verdict.records:,} records")
        _say(f"how it went: {report_dir / 'report.html'}, for a browser; {report_dir / 'summary.json'}, for programs")
    _say(f"both clusters stopped, their data deleted; {time.monotonic() - started:.0f} s in all")


@contextlib.contextmanager
def _clusters() -> Iterator[tuple[str, str]]:
    """Two running clusters' addresses, source and target; stopped and deleted at the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for name in ("source", "target"):
            _say(f"starting cluster {name!r}")
            addresses.append(stack.enter_context(Cluster()).bootstrap_servers)
        yield addresses[0], addresses[1]


def _copy(config: Path, report_dir: Path, source: str, target: str, *, as_json: bool) -> str:
    """Run `mirror run` as a user would; with ``as_json``, what it has printed.

    Ends this command with its exit status where it is not 0.
    """
    environment = {
        **os.environ,
        "MIRROR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS": source,
        "MIRROR_CLUSTERS__TARGET__BOOTSTRAP_SERVERS": target,
    }
    arguments = ["run", "--config", str(config), "--report-dir", str(report_dir), *(["--json"] if as_json else [])]
    _say(f"mirror {' '.join(arguments)}")
    command = [sys.executable, "-m", "mirror.cli", *arguments]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE if as_json else None, text=True)
    try:
        printed, _ = child.communicate()
    except BaseException:
        # Ctrl-C reached the child as well; SIGTERM did not. It ends Spark and leaves in its own time.
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_STOP_WITHIN_S)
        child.kill()
        child.wait()
        raise
    if child.returncode:
        if as_json:
            print(printed, end="")
        raise typer.Exit(child.returncode)
    return printed or ""


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that the clusters are stopped."""

    def unwind(number: int, _: FrameType | None) -> Never:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(f"mirror demo: {text}", file=sys.stderr, flush=True)
