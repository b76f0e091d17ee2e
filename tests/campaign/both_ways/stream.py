"""`mirror stream` with all flows of a campaign in a local Spark; the campaign kills it, or one of its workers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mirror.relay.batches.reencode_decision import SkipReason
from mirror.sandbox.process import _GUARD
from mirror.spark.ledger.ledger import Ledger
from tests import jvm
from tests.e2e.site import MARK, Site

CHECKOUT: Final = Path(__file__).parents[3]
STOPS_WITHIN_S: Final = 90.0
KEYS: Final = """period-ms = 8000
refresh-ms = 3000
commit-interval-ms = 500
commit-min-interval-ms = 200
shutdown-timeout-ms = 40000
"""
TIMEOUTS: Final = {"request.timeout.ms": 8_000, "default.api.timeout.ms": 30_000}
_WORKER_WITHIN_S: Final = 30.0
"""It takes as long as Spark's start, where the driver was killed just before."""
_LINES_SHOWN: Final = 3


class BothWaysStream:
    """The stream and its processes."""

    def __init__(self, folder: Path, addresses: Mapping[str, str], flows: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.site: Final = Site(folder)
        self.site.write(addresses, flows, **dict.fromkeys(addresses, TIMEOUTS))
        self.output: Final = folder / "output.txt"
        self._slots: Final = 2 * len(flows)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, as a scheduler does at the beginning and after a kill."""
        # The kernel kills it with the campaign.
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid())]
        master = ["--report-dir", str(self.site.report), "--master", f"local[{self._slots},4]"]
        environ = {**os.environ, MARK: str(self.site.folder), "PYTHONPATH": str(CHECKOUT)}
        with self.output.open("ab") as output:
            self._child = subprocess.Popen(
                [*guard, *self.site.command("stream"), *master],
                cwd=self.site.folder,
                env=environ | {"SPARK_SUBMIT_OPTS": " ".join(jvm.SPARK)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise AssertionError where it has ended by itself."""
        status = None if self._child is None else self._child.poll()
        assert status is None, f"the stream has ended by itself, with {status}: {self.last_lines()}"

    def kill(self) -> None:
        """SIGKILL all its processes, as the end of a host does."""
        self.site.kill()
        if self._child is not None:
            self._child.wait()
            self._child = None

    def kill_worker(self, rng: random.Random) -> bool:
        """SIGKILL one of its Python workers, as soon as there is one; return whether there was one in time."""
        until = time.monotonic() + _WORKER_WITHIN_S
        while not (workers := sorted(one.pid for one in self.site.workers())):
            if time.monotonic() > until:
                return False
            self.check()
            time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
            return True
        return False

    def stop(self) -> int:
        """SIGTERM it and return its exit status. AssertionError where it takes too long."""
        self.check()
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            msg = f"the stream does not end {STOPS_WITHIN_S:.0f} s after SIGTERM: {self.last_lines()}"
            raise AssertionError(msg) from error

    def failures(self) -> list[str]:
        """Return the partitions that its summary says have failed, with their errors."""
        summary = json.loads((self.site.report / "summary.json").read_text(encoding="utf-8"))
        results: list[tuple[str, dict[str, Any]]]
        results = [(flow["flow"], one) for flow in summary["flows"] for one in flow["partitions"]]
        return [
            f"{flow} {one['topic']}-{one['partition']}: {one['error']}"
            for flow, one in results
            if one["outcome"] == "failed"
        ]

    def left_out(self, flow: str) -> int:
        """Return how many records the runs of ``flow`` have left out as not local, by their results."""
        return sum(
            attempt.result.skipped.get(SkipReason.NOT_LOCAL, 0)
            for ledger in Ledger.runs(self.site.report, flow)
            for number in range((ledger.last_completed_period() or 0) + 1)
            for attempt in ledger.attempts(number)
        )

    def last_lines(self) -> str:
        """Return the end of its output."""
        return " | ".join(self.output.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_SHOWN:])
