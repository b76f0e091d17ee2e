"""Measures the memory of the processes of a running `mirror stream` (or `mirror run`), by role.

    PYTHONPATH=. python tests/campaign/measurements/stream_memory.py PID [--seconds 60]

PID is the process of the command. Prints the peak of each role in MB: proportional memory (PSS), which counts a page
that several processes share once; so the sum is what the host or container needs.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.benchmarks.side_by_side.metering import Meter


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    meter = Meter(options.pid, {}, roles=True)
    meter.start()
    time.sleep(options.seconds)
    meter.stop()
    shares = [sample.proportional for sample in meter.samples if sample.proportional]
    peaks = {role: max(one.get(role, 0) for one in shares) for role in sorted({role for one in shares for role in one})}
    peaks["all"] = max(sum(one.values()) for one in shares)
    sys.stdout.write(", ".join(f"{role} {size / 1e6:.0f} MB" for role, size in peaks.items()) + "\n")


if __name__ == "__main__":
    main()
