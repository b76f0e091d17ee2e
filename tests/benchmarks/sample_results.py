"""Results as ``make bench`` writes them, made up: each figure is one that a test can foretell."""

from __future__ import annotations

from typing import Any, Final

from tests.benchmarks.side_by_side.figures import COPIERS

SECONDS: Final = dict(zip(COPIERS, (2.0, 1.9, 6.0, 8.0, 20.0, 12.0, 10.0, 80.0, 1.8, 0.5, 1.7), strict=True))
"""A copy of a GB takes so long."""


KEPT: Final = {
    **dict.fromkeys(("missing", "doubled", "aborted", "moved", "reordered", "changed", "retimed", "other_offset"), 0),
    **dict.fromkeys(("configuration", "acl", "group"), True),
    "records": 6_600,
    "group_reads_again": 0,
    "source_batches": 66,
    "target_batches": 66,
    "source_codecs": ["lz4", "zstd"],
    "target_codecs": ["lz4", "zstd"],
    "killed_records": 300_000,
    "killed_missing": 0,
    "killed_doubled": 0,
}
NOT_KEPT: Final = {
    **dict.fromkeys(("configuration", "acl", "group"), False),
    "retimed": 6_600,
    "group_reads_again": None,
    "killed_doubled": 52_000,
}

COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"


def invocation(commit: str = COMMIT, *, clean: bool = True) -> dict[str, Any]:
    """A start of the benchmark on ``commit``."""
    return {
        "commit": commit,
        "clean": clean,
        "arguments": ["--rounds", "3"],
        "machine": {"cores": 2, "memory_gb": 24.0, "cpu": "an example", "kernel": "6.1"},
        "versions": {"kafka": "4.4.0", "mirror": "0.1.0", "java": "17", "python": "3.11", "spark": "4.3"},
        "started": "2026-11-22T02:00:00+00:00",
        "seed": 1,
    }


def results(workloads: str = "abcdefghij", rounds: int = 3) -> dict[str, Any]:
    """A document of ``rounds`` rounds; the third of each is half as fast, on all sides."""
    return {
        "invocations": [invocation()],
        "workloads": {
            name: {
                "title": "1 KB JSON, lz4, large batches",
                "partitions": 4,
                "brokers": 1,
                "replicas": 1,
                "records": 1_000_000,
                "bytes": 10**9,
                "batches": 16_000,
            }
            for name in workloads
        },
        "runs": [
            run(name, copier, number) for name in workloads for number in range(1, rounds + 1) for copier in COPIERS
        ],
        "latency": [
            {"copier": copier, "round": 1, "rate": 1_000, "seconds": 180, "p50": 20.0, "p99": p99, "p99.9": 200.0}
            | {"max": 300.0, "missing": 0, "copier_cpu_s": 90.0, "invocation": 0}
            for copier, p99 in (
                ("mirror-exactly-once", 50.0),
                ("mirrormaker-low-latency", 100.0),
                ("plain-spark", 70.0),
            )
        ],
        "recovery": [
            {"copier": copier, "round": 1, "rate": 1_000, "first": drained - 1, "drained": drained}
            | {"missing": 0, "doubled": 0, "invocation": 0}
            for copier, drained in (("mirror-exactly-once", 6.0), ("mirrormaker-low-latency", 24.0))
        ],
        "groups": [
            {"copier": copier, "round": 1, "groups": 1_000, "partitions": 10, "interval_ms": 1_000, "p50": 9_000.0}
            | {"p99": 16_000.0, "max": 18_000.0, "missing": 0, "copier_cpu": 0.4, "invocation": 0}
            | {"source_broker_cpu": 0.2, "target_broker_cpu": 0.3, "between_rounds": 1_100.0}
            for copier in ("mirror-exactly-once", "mirrormaker-default")
        ],
        "loads": [
            {"copier": copier, "round": 1, "partitions": 1_000, "rate": 250, "seconds": 20.0, "epoch_ms": 60_000}
            | {"p50": p50, "p99": 4 * p50, "max": 9 * p50, "missing": 0, "copier_cpu_s": 5.0, "invocation": 0}
            | {"source_cpu_s": 2.0, "target_cpu_s": 8.0}
            for copier, p50 in (("mirror-sequences", 10.0), ("mirrormaker-default", 40.0), ("plain-spark", 80.0))
        ],
        "losses": [
            {"copier": "mirror-exactly-once", "round": 1, **KEPT, "invocation": 0},
            {"copier": "mirrormaker-exactly-once", "round": 1, **KEPT, "group_reads_again": 580, "invocation": 0},
            {"copier": "plain-spark", "round": 1, **KEPT, **NOT_KEPT, "invocation": 0},
        ],
        "quiet": [
            {
                "round": 1,
                "partitions": 10_000,
                "runs": {
                    "nothing new": [
                        {
                            "seconds": 15.1,
                            "cpu_seconds": {"driver": 12.4, "spark": 1.9},
                            "peak_pss_mb": {"driver": 250, "spark": 235},
                            "broker_cpu_seconds": {"source": 1.5, "target": 1.3},
                        }
                    ]
                },
                "invocation": 0,
            }
        ],
        "idle": [
            {
                "round": 1,
                "with_idle": which,
                "epoch_seconds": 2.0,
                "whole_seconds": 9.0,
                "failed": None,
                "invocation": 0,
            }
            for which in (False, True)
        ],
    }


def run(workload: str, copier: str, number: int) -> dict[str, Any]:
    """One run of the round ``number``."""
    seconds = SECONDS[copier] * (2 if number == 3 else 1)
    cpu = {"copying": seconds / 4} | ({"spark": 0.5, "driver": 0.25} if copier.startswith("mirror-") else {})
    return {
        "workload": workload,
        "copier": copier,
        "round": number,
        "started": "2026-11-22T02:00:00Z",
        "load_before": 0.5,
        "whole_seconds": seconds + 5,
        "startup_seconds": 5.0,
        "copy_seconds": seconds,
        "cpu_seconds": {role: spent + 1 for role, spent in cpu.items()},
        "cpu_seconds_copying": cpu,
        "broker_cpu_seconds": {"source": 1.0, "target": 2.0},
        "peak_rss_mb": {"copying": 100.0 if copier.startswith("mirror-") else 400.0, "all": 500.0},
        "records": 1_000_000,
        "equal": True,
        "failed": None,
        "invocation": 0,
    }
