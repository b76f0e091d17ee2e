"""Time and memory of a verification of many partitions that finds nothing new behind its proof. Brokers in memory.

    PYTHONPATH=. python tests/benchmarks/bench_verify_again.py [--partitions 10000]

The proof covers all of what is copied, so that only the bounds of both sides and the progress are read, and the proof
parsed: no Spark is started. CPU is that of this process without the brokers'. Memory is the peak of what
Python has allocated meanwhile, in a verification of its own, because counting it takes time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest

from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.relay.progress.committed import group_of
from mirror.spark.clusters import open_sides
from mirror.spark.verification.planning import VerifyRequest, make_plan
from mirror.verify.partition_results import PartitionResult, VerifyRange
from mirror.verify.proof import Link, Proof, parse_proof, proved_ranges
from mirror.verify.values import Verdict
from tests.benchmarks.bench_rehearsal import RECORDS
from tests.fakes.broker_time import broker_time
from tests.relay.fake_pair import FLOW, FakePair


def copied(monkeypatch: pytest.MonkeyPatch, partitions: int) -> FakePair:
    """One partition is copied; the others get what that has left: its log and its progress."""
    pair = FakePair(monkeypatch, partitions=partitions)
    values = [b"%d" % number for number in range(RECORDS)]
    for partition in range(partitions):
        pair.write(*values, partition=partition)
    pair.copy()
    first = TopicPartition("paris.t", 0)
    progress = pair.target.groups[group_of(FLOW, first)][first]
    for partition in range(1, partitions):
        for batch in pair.log().batches():
            pair.log(partition).append(bytes(batch.view))
        target = TopicPartition("paris.t", partition)
        pair.target.groups[group_of(FLOW, target)][target] = progress
    return pair


def configuration(pair: FakePair, folder: Path) -> Path:
    file = folder / "mirror.toml"
    file.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n'
    )
    return file


def proof_of(ranges: list[VerifyRange], file: Path) -> None:
    """What a verification of everything writes; here nothing is compared for it."""
    results = [PartitionResult.of(one, _equal(one)) for one in ranges]
    link = Link(
        time="",
        version="",
        flow=FLOW,
        source_cluster_id="paris",
        target_cluster_id="berlin",
        settings={},
        ranges=proved_ranges(results),
    )
    file.write_text(Proof().extended(link).to_json())


def _equal(one: VerifyRange) -> Verdict:
    bounds = one.bounds
    return Verdict(
        source_start=bounds.source_start,
        target_start=bounds.target_start,
        source_end=bounds.source_end,
        target_end=bounds.target_end,
        records=RECORDS,
        digest="0" * 64,
    )


def measure(file: Path, proof: Path | None) -> tuple[list[VerifyRange], float, float]:
    """What is to be compared, seconds, and seconds of CPU without the brokers'."""
    config = load(file)
    (flow,) = config.select()
    with broker_time() as brokers:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        known = Proof() if proof is None else parse_proof(proof.read_text())
        with open_sides(config, flow) as sides:
            plan = make_plan(VerifyRequest(flow=flow, proof=known), sides)
        seconds, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return plan.ranges, seconds, used_s - brokers.cpu_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    partitions = parser.parse_args().partitions
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        file, proof = configuration(copied(monkeypatch, partitions), Path(folder)), Path(folder) / "proof.json"
        ranges, *_ = measure(file, None)
        assert len(ranges) == partitions
        proof_of(ranges, proof)
        runs = []
        for _ in range(3):
            left, seconds, cpu_s = measure(file, proof)
            assert left == [], "the proof covers everything"
            runs.append(f"{seconds:.1f} s, {cpu_s:.1f} s of CPU")
        tracemalloc.start()
        measure(file, proof)
        peak = tracemalloc.get_traced_memory()[1]
        size = proof.stat().st_size
    sizes = f"{peak / 1e6:.0f} MB; proof of {size / 1e6:.1f} MB"
    sys.stdout.write(f"{partitions:,} partitions, nothing new: {'; '.join(runs)}; {sizes}\n")


if __name__ == "__main__":
    main()
