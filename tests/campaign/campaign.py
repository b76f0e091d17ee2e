"""The long campaign: minutes of load on three real brokers while one of them is killed, stopped and cut off.

    python tests/campaign/campaign.py

MIRROR_CAMPAIGN_SECONDS (default 300) of load for each harm, which comes and goes meanwhile, and a quarter of it for
each harm and level of transactions; MIRROR_CAMPAIGN_PER_SECOND (default 10) batches for each of 12 partitions. Results:
a line for each run, and ``results-campaign.json`` beside this file. Exit status 1 where anything was not as it must be.
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

from tests.campaign.run import DELIVERY_MS, Run, run, too_slow
from tests.campaign.stage import HARMS, NONE, NONE_PROXIED, Harm, Stage, stage
from tests.campaign.transactions import TransactionalRun, run_transactions

SECONDS: Final = float(os.environ.get("MIRROR_CAMPAIGN_SECONDS", "300"))
PER_SECOND: Final = float(os.environ.get("MIRROR_CAMPAIGN_PER_SECOND", "10"))
RESULTS: Final = Path(__file__).with_name("results-campaign.json")
_REST_S: Final = SECONDS / 5
"""Between two harms of one run."""


class Campaign:
    """Runs one after the other, and what came of them."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.wrong = 0
        self._console = Console()

    def note(self, title: str, act: Callable[[], Run | TransactionalRun], baseline: Run | None = None) -> Any:
        """Do it, print it, keep it, also in the file."""
        load = os.getloadavg()[0]
        found = act()
        wrong = found.wrong + (too_slow(found, baseline) if isinstance(found, Run) and baseline is not None else [])
        self.wrong += len(wrong)
        self.results[title] = found.figures | {"wrong": wrong, "machine_load_before": round(load, 1)}
        self._console.print(f"[bold]{title}[/]: {wrong or 'as it must be'}\n  {found.figures}")
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

    def idempotent(self, on_stage: Stage) -> None:
        """Every harm, each compared with as quiet a run just before."""

        def one(harm: Harm, seconds: float) -> Run:
            return run(on_stage, harm, seconds=seconds, rest_s=_REST_S, per_second=PER_SECOND)

        for name, harm in HARMS.items():
            quiet = NONE_PROXIED if harm.proxied else NONE
            baseline = self.note(f"before: {name}", lambda quiet=quiet: one(quiet, SECONDS / 4))  # type: ignore[misc]
            self.note(name, lambda harm=harm: one(harm, SECONDS), baseline)  # type: ignore[misc]

    def transactional(self, on_stage: Stage, level: int) -> None:
        """Every harm once more, with transactions."""
        for name, harm in HARMS.items():
            self.note(
                f"transactions of version {level}: {name}",
                lambda harm=harm: run_transactions(on_stage, harm, seconds=SECONDS / 4, rest_s=10),  # type: ignore[misc]
            )


def main() -> int:
    """All of it, one cluster at a time."""
    campaign = Campaign()
    for level in (2, 1):
        with stage({"transaction.version": level}) as on_stage:
            if level == 2:
                campaign.idempotent(on_stage)
            campaign.transactional(on_stage, level)
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
