"""The soak campaign: minutes of load on three real brokers, one of which is killed, stopped and disconnected.

    python tests/campaign/soak/campaign.py

The load of each fault lasts MIRROR_CAMPAIGN_SECONDS (default 300), while the fault begins and ends repeatedly, and a
quarter of it for each fault and level of transactions. Each of 12 partitions receives MIRROR_CAMPAIGN_PER_SECOND
(default 10) batches. The results are a line for each run, and ``results-campaign.json`` beside this file. The exit
status is 1 where there are findings.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.campaign.soak.cluster import FAULTS, NO_FAULT, NO_FAULT_PROXIED, BrokerFault, SoakCluster, soak_cluster
from tests.campaign.soak.run import DELIVERY_MS, Run, run, too_slow
from tests.campaign.soak.transactions import TransactionalRun, run_transactions

SECONDS: Final = float(os.environ.get("MIRROR_CAMPAIGN_SECONDS", "300"))
PER_SECOND: Final = float(os.environ.get("MIRROR_CAMPAIGN_PER_SECOND", "10"))
RESULTS: Final = Path(__file__).with_name("results-campaign.json")
_REST_S: Final = SECONDS / 5
"""Between two faults of one run."""


class Campaign:
    """The runs, one after the other, and their results."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.wrong = 0
        self._console = Console()

    def note(self, title: str, act: Callable[[], Run | TransactionalRun], baseline: Run | None = None) -> Any:
        """Execute a run, and print and store its result."""
        load = os.getloadavg()[0]
        found = act()
        wrong = found.wrong + (too_slow(found, baseline) if isinstance(found, Run) and baseline is not None else [])
        self.wrong += len(wrong)
        self.results[title] = found.figures | {"wrong": wrong, "machine_load_before": round(load, 1)}
        self._console.print(f"[bold]{title}[/]: {wrong or 'no findings'}\n  {found.figures}")
        document = {
            "seconds_of_each_run": SECONDS,
            "batches_per_second_and_partition": PER_SECOND,
            "delivery_timeout_ms": DELIVERY_MS,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "runs": self.results,
        }
        RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return found

    def idempotent(self, cluster: SoakCluster) -> None:
        """Run every fault, each after a run without faults to compare it with."""

        def one(fault: BrokerFault, seconds: float) -> Run:
            return run(cluster, fault, seconds=seconds, rest_s=_REST_S, per_second=PER_SECOND)

        for name, fault in FAULTS.items():
            quiet = NO_FAULT_PROXIED if fault.proxied else NO_FAULT
            baseline = self.note(f"before: {name}", lambda quiet=quiet: one(quiet, SECONDS / 4))  # type: ignore[misc]
            self.note(name, lambda fault=fault: one(fault, SECONDS), baseline)  # type: ignore[misc]

    def transactional(self, cluster: SoakCluster, level: int) -> None:
        """Run every fault with transactional producers."""
        for name, fault in FAULTS.items():
            self.note(
                f"transactions of version {level}: {name}",
                lambda fault=fault: run_transactions(cluster, fault, seconds=SECONDS / 4, rest_s=10),  # type: ignore[misc]
            )


def main() -> int:
    """Run the campaign, one cluster at a time."""
    campaign = Campaign()
    for level in (2, 1):
        with soak_cluster({"transaction.version": level}) as cluster:
            if level == 2:
                campaign.idempotent(cluster)
            campaign.transactional(cluster, level)
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
