"""Flows that feed each other, with producers on every cluster, while workers, drivers and brokers are killed.

    python tests/campaign/both_ways/campaign.py [--layout pair|mesh|ring]... [--by auto|sequences|transactions]...
                                                [--seconds 180] [--seed N] [--brokers N]

``pair`` are two clusters that copy one topic to each other with ``origin = "local"``, ``mesh`` are three, ``ring`` are
three clusters with ``naming = "prefix"``. On each cluster a plain, an idempotent and a transactional producer, which
also aborts, write to the same topic. In the end another client reads all clusters: each record that was produced is on
each cluster once, in its producer's order, and none comes back.

Each layout is played by each way. The faults follow from the seed, which is printed with the options that repeat a
round (its choices, but not the machine's timing). The files of a round with findings are kept in ``build/both-ways``.
The exit status is 1 where there are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from mirror.client import Admin, TopicPartition
from mirror.errors import SandboxError
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.both_ways.layouts import LAYOUTS
from tests.campaign.both_ways.producers import KINDS, LocalProducers
from tests.campaign.both_ways.stream import KEYS, BothWaysStream
from tests.campaign.both_ways.verification import Logs, findings, foreign_records, left_out_findings
from tests.campaign.chaos.compare import Record
from tests.campaign.chaos.kafka_side import Place
from tests.campaign.chaos.reader import read, transactions_ended
from tests.e2e.broker_side import Side
from tests.polling import eventually

WAYS: Final = ("sequences", "transactions", "auto")
TOPIC: Final = "orders"
PARTITIONS: Final = 2
PER_SECOND: Final = 20.0
KEPT: Final = Path(__file__).parents[3] / "build" / "both-ways"
FAULTS: Final = {"worker killed": 5, "driver killed": 2, "broker killed": 3}
"""The faults and their relative frequencies."""
PROPERTIES: Final = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "log.retention.ms": "-1",
}
_REST_S: Final = (4.0, 12.0)
_DOWN_S: Final = (0.0, 8.0)
_COMPLETE_WITHIN_S: Final = 150.0
_QUIET_S: Final = 10.0
"""How long nothing may be copied any more before the stream is stopped: several rounds of each flow."""
_READ_WITHIN_S: Final = 60.0


def open_transactions(address: str, places: list[Place]) -> list[str]:
    """Return what leaders and coordinators have of the open transactions, a line for each."""
    with Admin({"bootstrap.servers": address}) as admin:
        open_ = [
            (tp, one)
            for tp, found in admin.describe_producers([TopicPartition(*place) for place in places]).items()
            for one in found
            if one.transaction_start is not None
        ]
        listed = admin.list_transactions(one.producer_id for _, one in open_)
        described = admin.describe_transactions([one.transactional_id for one in listed])
    return [f"{tp}: {one}" for tp, one in open_] + [f"{name}: {one}" for name, one in described.items()]


class BothWaysRound:
    """One layout, copied by one way."""

    def __init__(
        self, layout: str, by: str, clusters: Mapping[str, Cluster], folder: Path, rng: random.Random, console: Console
    ) -> None:
        self.counts: Final = Counter[str]()
        self._rng: Final = rng
        self._console: Final = console
        self._clusters: Final = clusters
        self._addresses: Final = {name: cluster.bootstrap_servers for name, cluster in clusters.items()}
        self._layout: Final = LAYOUTS[layout]
        self._origins: Final = self._layout.origins(TOPIC)
        keys = f'exactly-once-by = "{by}"\n{KEYS}'
        self._stream: Final = BothWaysStream(folder, self._addresses, dict(self._layout.flows(TOPIC, keys)))

    def play(self, seconds: float, seed: int) -> list[str]:
        """Return the findings."""
        for address in self._addresses.values():
            Side(address).create(TOPIC, PARTITIONS)
        producers = [
            LocalProducers(name, address, TOPIC, PARTITIONS, PER_SECOND, first=KINDS * place, seed=seed)
            for place, (name, address) in enumerate(self._addresses.items())
        ]
        cluster_of = {index: one.cluster for one in producers for index in one.indexes}
        self._stream.start()
        try:
            self._await_copies()
            self._inject(seconds)
            for one in producers:
                one.stop()
            for address in self._addresses.values():
                places = [(TOPIC, partition) for partition in range(PARTITIONS)]
                ended = partial(transactions_ended, address, places)
                try:
                    eventually(ended, within_s=90, every_s=1, what=f"no open transaction on {address}")
                except AssertionError as error:
                    raise AssertionError(f"{error}: {open_transactions(address, places)}") from None
            wrong = self._await_complete(cluster_of)
            self._rest(_QUIET_S)
            if status := self._stream.stop():
                wrong.append(f"the stream ended with {status}: {self._stream.last_lines()}")
            wrong += self._stream.failures()
        finally:
            self._stream.kill()
        logs = self._read()
        self.counts["records"] = sum(len(records) for parts in logs.values() for records in parts)
        wrong += findings(logs, self._origins, TOPIC, cluster_of)
        if self._layout.naming == "identity":
            wrong += self._compare_counts(foreign_records(logs, TOPIC, cluster_of))
        return [*wrong, *(line for one in producers for line in one.lost(logs))]

    # --- faults

    def _inject(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            (fault,) = self._rng.choices(list(FAULTS), list(FAULTS.values()))
            done = True
            if fault == "worker killed":
                done = self._stream.kill_worker(self._rng)
            elif fault == "driver killed":
                self._stream.kill()
                self._stream.start()
            else:
                self._kill_a_broker()
            self.counts[fault if done else f"no {fault}"] += 1
            self._console.print(f"  {seconds - (until - time.monotonic()):.0f} s: {'' if done else 'no '}{fault}")
            self._rest(self._rng.uniform(*_REST_S))

    def _kill_a_broker(self) -> None:
        cluster = self._clusters[self._rng.choice(sorted(self._clusters))]
        broker = self._rng.choice(sorted(cluster.pids))
        cluster.kill(broker)
        self._rest(self._rng.uniform(*_DOWN_S))
        cluster.restart(broker)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._stream.check()
            time.sleep(0.2)

    # --- verification

    def _await_copies(self) -> None:
        """Wait until the stream copies to each cluster: what is killed before copies nothing."""

        def copied() -> bool:
            self._stream.check()
            return all(topic in Side(self._addresses[cluster]).topics() for cluster, topic in self._origins) and all(
                map(len, self._records().values())
            )

        eventually(copied, within_s=120, every_s=2, what="the first copies")

    def _compare_counts(self, foreign: Mapping[str, int]) -> list[str]:
        """Compare what the flows report as not local with what their sources have of others."""
        left_out = {
            (source, target): self._stream.left_out(f"{source}-{target}") for source, target in self._layout.edges
        }
        for (source, target), count in left_out.items():
            self._console.print(f"  {source}-{target}: {count} of {foreign[source]} records reported as not local")
        return left_out_findings(left_out, foreign, disturbed=any(self.counts[fault] for fault in FAULTS))

    def _records(self) -> dict[tuple[str, str], list[Record]]:
        return {topic: [one for records in parts for one in records] for topic, parts in self._read().items()}

    def _await_complete(self, cluster_of: Mapping[int, str]) -> list[str]:
        """Return a line if not everything is everywhere in time; what is missing is found later."""
        produced = {
            (cluster, partition): sum(cluster_of.get(one.number // 10**9) == cluster for one in records)
            for (cluster, topic), parts in self._read().items()
            if topic == TOPIC
            for partition, records in enumerate(parts)
        }
        began = time.monotonic()
        for (cluster, topic), origins in self._origins.items():
            places = [(topic, partition) for partition in range(PARTITIONS)]
            wanted = {
                place: sum(produced[origin, partition] for origin in origins) for partition, place in enumerate(places)
            }
            within_s = max(1.0, began + _COMPLETE_WITHIN_S - time.monotonic())
            _, missing = read(self._addresses[cluster], places, within_s, partial(_is_complete, wanted))
            if missing:
                return [f"{sorted(missing)} of {cluster} have not everything after {_COMPLETE_WITHIN_S:.0f} s"]
        self._console.print(f"  complete {time.monotonic() - began:.0f} s after the last record")
        return []

    def _read(self) -> Logs:
        logs: dict[tuple[str, str], list[list[Record]]] = {}
        for cluster, topic in self._origins:
            places = [(topic, partition) for partition in range(PARTITIONS)]
            found, missing = read(self._addresses[cluster], places, _READ_WITHIN_S)
            assert not missing, f"{sorted(missing)} of {cluster} were not read to their ends"
            logs[cluster, topic] = [found[place] for place in places]
        return logs


def _is_complete(wanted: Mapping[Place, int], place: Place, records: list[Record]) -> bool:
    return len(records) >= wanted[place]


@contextlib.contextmanager
def open_clusters(names: tuple[str, ...], brokers: int) -> Iterator[dict[str, Cluster]]:
    """Start a cluster for each name, and stop all in any case."""
    properties = PROPERTIES | {"default.replication.factor": str(brokers)}
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Cluster(brokers, properties=properties, heap=jvm.BROKER)) for name in names}


def play(layout: str, by: str, *, seconds: float, seed: int, brokers: int, console: Console) -> list[str]:
    """Play one round on its own clusters, and return its findings."""
    console.print(
        f"{layout} by {by}: repeat it with --layout {layout} --by {by} --seed {seed} --brokers {brokers}"
        f" --seconds {seconds:.0f}"
    )
    folder = Path(tempfile.mkdtemp(prefix="both-ways-"))
    began, counts = time.monotonic(), Counter[str]()
    try:
        with open_clusters(LAYOUTS[layout].clusters, brokers) as clusters:
            round_ = BothWaysRound(layout, by, clusters, folder, random.Random(seed), console)
            counts = round_.counts
            try:
                wrong = round_.play(seconds, seed)
            except (AssertionError, SandboxError) as error:
                wrong = [str(error)]
        if wrong:
            shutil.rmtree(KEPT / f"{layout}-{by}-{seed}", ignore_errors=True)
            shutil.copytree(folder, KEPT / f"{layout}-{by}-{seed}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = "nothing found" if not wrong else f"{len(wrong)} findings"
    console.print(f"  {time.monotonic() - began:.0f} s, {dict(sorted(counts.items()))}: {found}")
    for line in wrong:
        console.print(f"  {line}", markup=False)
    return wrong


def main() -> int:
    """Play the rounds; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=sorted(LAYOUTS), action="append", help="only these")
    parser.add_argument("--by", choices=WAYS, action="append", help="only these; by default sequences and transactions")
    parser.add_argument("--seconds", type=float, default=180, help="of faults in each round")
    parser.add_argument("--seed", type=int, help="of the first round; the others count on from it")
    parser.add_argument("--brokers", type=int, default=1, help="of each cluster")
    arguments = parser.parse_args()
    first = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    console = Console(soft_wrap=True)
    rounds = [(layout, by) for layout in arguments.layout or LAYOUTS for by in arguments.by or WAYS[:2]]
    wrong = 0
    for number, (layout, by) in enumerate(rounds):
        wrong += bool(
            play(
                layout,
                by,
                seconds=arguments.seconds,
                seed=first + number,
                brokers=arguments.brokers,
                console=console,
            )
        )
    console.print(f"{len(rounds)} rounds, {wrong} with findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
