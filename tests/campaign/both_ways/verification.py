"""Verifies that each record is once on each cluster, in its producer's order, and that none came back. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.campaign.both_ways.layouts import Topic
from tests.campaign.chaos.compare import Record, difference

NUMBERS_EACH: Final = 1_000_000_000
"""The producer with index N writes records whose numbers begin at N times this."""

Logs = Mapping[Topic, Sequence[Sequence[Record]]]
"""The committed records of each partition of each topic."""


def producer_of(record: Record) -> int:
    """Return the index of the producer of ``record``; -1 if it has no number."""
    return record.number // NUMBERS_EACH


def by_producer(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Return the records of each producer, in order."""
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[producer_of(record)].append(record)
    return found


def foreign_records(logs: Logs, topic: str, cluster_of: Mapping[int, str]) -> dict[str, int]:
    """Return how many records of ``topic`` on each cluster were produced on another one: what local flows leave out."""
    return {
        cluster: sum(cluster_of.get(producer_of(one)) != cluster for records in parts for one in records)
        for (cluster, name), parts in logs.items()
        if name == topic
    }


def left_out_findings(
    left_out: Mapping[tuple[str, str], int], foreign: Mapping[str, int], *, disturbed: bool
) -> list[str]:
    """Return a line for each flow (source, target) that reports a wrong count of records as not local.

    In a ``disturbed`` round it may be too small: what a killed process has counted since its last report is lost.
    """
    return [
        f"{source}-{target} reports {count} records as not local, and {source} has {foreign[source]}"
        for (source, target), count in left_out.items()
        if count > foreign[source] or (count < foreign[source] and not disturbed)
    ]


def findings(
    logs: Logs, origins: Mapping[Topic, frozenset[str]], produced_into: str, cluster_of: Mapping[int, str]
) -> list[str]:
    """Return a line for everything that is wrong.

    ``origins`` are the clusters whose records each topic should have, ``produced_into`` is the topic that all producers
    have written to, and ``cluster_of`` has the cluster of each producer.
    """
    wrong: list[str] = []
    truth = {
        (producer, partition): by_producer(records)[producer]
        for producer, cluster in cluster_of.items()
        for partition, records in enumerate(logs[cluster, produced_into])
    }
    for (producer, partition), records in truth.items():
        # A plain producer may itself be out of order where a broker ended, which is none of the flows' doing.
        if more := len(records) - len({record.number for record in records}):
            wrong.append(
                f"producer {producer} has {more} records twice in partition {partition} of {cluster_of[producer]}"
            )
    for (cluster, topic), clusters in origins.items():
        for partition, there in enumerate(logs[cluster, topic]):
            wanted = {producer for producer, its in cluster_of.items() if its in clusters}
            found = by_producer(there)
            for producer in sorted(wanted | found.keys()):
                expected = truth[producer, partition] if producer in wanted else []
                if text := difference(expected, found.get(producer, [])):
                    wrong.append(f"{topic}-{partition} of {cluster}, producer {producer}: {text}")
    return wrong
