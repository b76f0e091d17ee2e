"""Two clusters that obey ACLs, a copier behind links that can be cut, and clients of both clusters."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mirror.client import AclBinding, AclOperation, Admin, NewTopic, ResourceType
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.alignment.permissions.guarded import LOGIN, PROPERTIES, create, login
from tests.benchmarks.brokers import cluster
from tests.benchmarks.loss import accounting
from tests.benchmarks.loss.clients import GROUP, PARTITIONS, TOPIC, Application, Reader, Writer
from tests.benchmarks.loss.copiers import Copier, Mirror, MirrorMaker, Place, PlainSpark, spark_cluster
from tests.benchmarks.loss.page import STARTS_WITHIN_S
from tests.benchmarks.network.links import Line, Link, Namespace, network
from tests.topic_creation import create_topics

LINK: Final = "LINK"
"""The listener of the copier, at the brokers' end of its link."""
SETTLED_S: Final = 10.0
_POLL_S: Final = 0.5
_BROKERS: Final = {
    "log.index.size.max.bytes": "262144",
    "log.retention.ms": "-1",
}


@dataclass
class Site:
    """Everything of one session. The writer is alice, the application bob, on both clusters."""

    name: str
    """The copier's."""
    source: Cluster
    target: Cluster
    links: tuple[Link, Link]
    """To the source and to the target."""
    namespace: Namespace
    folder: Path
    copier: Copier
    writer: Writer
    reader: Reader
    application: Application
    left: list[Application] = field(default_factory=list)
    """The application on the source, once it has moved."""

    def keep(self) -> None:
        """Let the supervisor do its work."""
        with self.namespace.entered():
            self.copier.keep()

    def wait_while(self, unready: Callable[[], bool], within_s: float) -> bool:
        """Return whether the condition ended in that time; the copier is supervised meanwhile."""
        until = time.monotonic() + within_s
        while unready():
            if time.monotonic() > until:
                return False
            self.keep()
            time.sleep(_POLL_S)
        return True

    def served_since(self, since: float) -> float | None:
        """Return from when on clients of the target are served, of the time after ``since``."""
        acknowledged, shown = self.writer.acknowledged.copy(), self.reader.firsts.copy()
        return accounting.unserved_until(acknowledged, shown, since, time.monotonic())

    def await_served(self, since: float, within_s: float) -> float | None:
        """Wait until clients are served for :data:`SETTLED_S`; return since when; None: not in that time."""

        def unready() -> bool:
            served = self.served_since(since)
            return served is None or time.monotonic() < max(served, since) + SETTLED_S

        return self.served_since(since) if self.wait_while(unready, within_s) else None

    def restart(self) -> None:
        """Stop and start the copier, as an operator does whose clients are not served by themselves.

        Raises AssertionError if they are not served then.
        """
        with self.namespace.entered():
            self.copier.stop()
            self.copier.start()
        self.begin()

    def begin(self) -> None:
        """Wait until clients are served. Raises AssertionError if they are not in time."""
        assert self.await_served(time.monotonic(), STARTS_WITHIN_S) is not None, f"{self.name} serves no client"

    def stop_applications(self) -> None:
        """End those of both clusters."""
        for one in (self.application, *self.left):
            one.abandon()
            one.stop()

    def brokers_of(self, side: str) -> Cluster:
        """Return the cluster "source" or "target"."""
        return self.source if side == "source" else self.target


def _mirror(stack: contextlib.ExitStack, place: Place) -> Copier:
    return Mirror(place, stack.enter_context(spark_cluster(place.folder)))


def _spark(stack: contextlib.ExitStack, place: Place) -> Copier:
    return PlainSpark(place, stack.enter_context(spark_cluster(place.folder)))


def _mirrormaker(_: contextlib.ExitStack, place: Place) -> Copier:
    return MirrorMaker(place)


COPIERS: Final[Mapping[str, Callable[[contextlib.ExitStack, Place], Copier]]] = {
    "mirror": _mirror,
    "mirrormaker": _mirrormaker,
    "spark": _spark,
}

SINKS: Final = frozenset({"spark"})
"""Copiers that create no topics."""


@contextlib.contextmanager
def site(name: str, brokers: int, rate: int) -> Iterator[Site]:
    """The copier ``name`` copies, and clients are served. Raises AssertionError if they are not in time."""
    with tempfile.TemporaryDirectory(prefix="loss-") as where, contextlib.ExitStack() as stack:
        folder = Path(where)
        namespace, (to_source, to_target) = stack.enter_context(network(folder, [Line(), Line()]))
        source, target = (stack.enter_context(_cluster(brokers, link)) for link in (to_source, to_target))
        _prepare(source, creates=True)
        _prepare(target, creates=name in SINKS)
        place = Place(source.bootstrap(LINK), target.bootstrap(LINK), folder, min(3, brokers))
        reader = Reader({"bootstrap.servers": target.bootstrap_servers})
        stack.callback(reader.stop)
        writer = Writer(login(source, "alice"), rate)
        stack.callback(writer.stop)
        application = Application(login(source, "bob"))
        with namespace.entered():
            copier = stack.enter_context(_running(COPIERS[name](stack, place)))
        made = Site(
            name, source, target, (to_source, to_target), namespace, folder, copier, writer, reader, application
        )
        stack.callback(made.stop_applications)
        made.begin()
        yield made


@contextlib.contextmanager
def _running(copier: Copier) -> Iterator[Copier]:
    try:
        copier.start()
        yield copier
    finally:
        copier.stop()


def _cluster(brokers: int, link: Link) -> Cluster:
    replicas = min(3, brokers)
    replication = {"default.replication.factor": str(replicas), "min.insync.replicas": str(min(2, replicas))}
    return cluster(
        brokers,
        properties={**PROPERTIES, **_BROKERS, **replication},
        listeners={LOGIN: "SASL_PLAINTEXT", LINK: "PLAINTEXT"},
        address=link.near,
        heap=jvm.PLAIN_BROKER,
    )


def _prepare(made: Cluster, *, creates: bool) -> None:
    """Create who may use the topic, and the topic where the copier does not."""
    options: dict[str, Any] = {"bootstrap.servers": made.bootstrap_servers}
    with Admin(options) as admin:
        if creates:
            create_topics(admin, [NewTopic(TOPIC, PARTITIONS)])
        create(
            admin,
            [
                AclBinding(ResourceType.TOPIC, TOPIC, "User:alice", AclOperation.WRITE),
                AclBinding(ResourceType.TOPIC, TOPIC, "User:bob", AclOperation.READ),
                AclBinding(ResourceType.GROUP, GROUP, "User:bob", AclOperation.READ),
            ],
        )
