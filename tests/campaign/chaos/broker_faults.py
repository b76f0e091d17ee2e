"""Faults of brokers, of their disks and clocks, and of the network between them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from confluent_kafka import ElectionType, KafkaException, TopicPartition

from tests.campaign.chaos.injection import PREFIX, Injection
from tests.campaign.chaos.kafka_side import CALL_S, POLL_S, WITHIN_S
from tests.campaign.chaos.reader import ends
from tests.campaign.chaos.wall_clock import BrokerClock
from tests.polling import eventually

_CLOCKS_S: Final = (3_600, 1_800, 300, -300, -1_800, -3_600)
"""Brokers refuse records whose timestamps are an hour ahead of their clock; those of the load are an hour old."""
_ALONE_OFFSETS: Final = 100
"""How many offsets the leader alone acknowledges."""


class _OfBroker(Injection):
    """A fault of one broker, which hits the partitions that the broker leads when it begins."""

    unit: ClassVar = "partitions whose leader was affected"

    @property
    def broker(self) -> int:
        return self.fault.broker

    def begin(self) -> None:
        self.count = self.side.led_by(self.broker, self.topics)
        self.side.affected.add(self.broker)
        self.affect()

    def end(self) -> None:
        self.repair()
        self.side.affected.discard(self.broker)

    def affect(self) -> None:
        raise NotImplementedError

    def repair(self) -> None:
        """Undo it."""


class BrokerKilled(_OfBroker):
    """SIGKILL."""

    def affect(self) -> None:
        self.side.cluster.kill(self.broker)

    def repair(self) -> None:
        self.side.cluster.restart(self.broker)


class BrokerStopped(_OfBroker):
    """SIGSTOP: the connections stay open, and no request is answered."""

    def affect(self) -> None:
        self.side.cluster.pause(self.broker)

    def repair(self) -> None:
        self.side.cluster.resume(self.broker)


class BrokerRestarted(_OfBroker):
    """SIGTERM and a start: the broker gives up its leaderships before it stops."""

    def affect(self) -> None:
        self.side.cluster.restart(self.broker)
        self.side.affected.discard(self.broker)


class DiskFull(_OfBroker):
    """No byte can be written to the broker's data folder."""

    unit: ClassVar = "writes refused"

    def affect(self) -> None:
        assert self.side.disk is not None
        self._since = self.side.log_size(self.broker)
        self.side.disk.fill()

    def repair(self) -> None:
        assert self.side.disk is not None
        self.count = len(self.side.logged(self.broker, self._since, "No space left on device"))
        ended = self.broker not in self.side.cluster.pids
        self.log(f"the broker with the full disk had {'ended' if ended else 'not ended'}; {self.effect}")
        self.side.disk.clear()
        self.side.cluster.restart(self.broker)


class CertificateExpired(_OfBroker):
    """The broker presents an expired certificate to all connections."""

    unit: ClassVar = "TLS handshakes failed"

    def affect(self) -> None:
        self.context.clusters.set_certificate(self.broker, "expired")
        self._since = self.side.log_size(self.broker)
        self.side.cluster.restart(self.broker)  # Connections from before have seen the valid one.
        self.side.affected.discard(self.broker)

    def repair(self) -> None:
        self.count = len(self.side.logged(self.broker, self._since, "SSL handshake failed"))
        self.context.clusters.set_certificate(self.broker, "valid")


class BrokerClockWrong(_OfBroker):
    """The broker restarts with another time of day, and leads partitions with it."""

    unit: ClassVar = "partitions led by a broker with a wrong clock"

    def affect(self) -> None:
        clock = BrokerClock.available()
        assert clock is not None
        seconds = self.rng.choice(_CLOCKS_S)
        self._since = self.side.log_size(self.broker)
        with clock.offset(seconds):
            self.side.cluster.restart(self.broker)
        self.side.affected.discard(self.broker)
        self.side.move_leaders(self.topics, self.rng)
        stamps = self.side.logged(self.broker, self._since, r"(?m)^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d),")
        measured = time.mktime(time.strptime(stamps[-1], "%Y-%m-%dT%H:%M:%S")) - time.time()
        led = self.side.led_by(self.broker, self.topics)
        self.count = led if abs(measured - seconds) < abs(seconds) / 2 else 0
        self.log(f"clock at {seconds:+d} s, {measured:+.0f} s by the broker's log; {self.effect}")

    def repair(self) -> None:
        self.side.affected.add(self.broker)
        self.side.cluster.restart(self.broker)


class _Partitioned(_OfBroker):
    """The bytes between the broker and other nodes are held back."""

    unit: ClassVar = "bytes held back between nodes"

    def reaches(self) -> tuple[bool, bool]:
        """Return whether the broker is separated from the other brokers, and from the controller."""
        raise NotImplementedError

    def affect(self) -> None:
        brokers, controller = self.reaches()
        self.log(f"separated from: {', '.join(['brokers'] * brokers + ['controller'] * controller)}")
        self._held = self.side.cluster.network.bytes_held
        self.side.partition(self.broker, brokers=brokers, controller=controller)

    def repair(self) -> None:
        network = self.side.cluster.network
        out, held = self.side.out_of_sync(self.broker, self.topics), network.bytes_held - self._held
        network.heal(self.broker)
        # Otherwise the cluster has not noticed the partition.
        self.count = held if out else 0
        self.log(f"{held:,} bytes held back; {out} replicas at the broker had left the ISR")


class BrokersPartitioned(_Partitioned):
    """The broker is separated from the other brokers, and sometimes from the controller, too."""

    def reaches(self) -> tuple[bool, bool]:
        return True, self.rng.random() < 0.5


class ControllerUnreachable(_Partitioned):
    """The broker is separated from the controller alone: replication continues, its leadership expires."""

    def reaches(self) -> tuple[bool, bool]:
        return False, True


class UncleanElection(Injection):
    """A replica that is not in sync becomes the leader of a copy, which loses records that were acknowledged.

    The copy has two replicas and wants one in sync. The follower is stopped until the leader alone has acknowledged
    records. Then the leader is killed, and the follower resumes and is elected.
    """

    unit: ClassVar = "acknowledged offsets lost"

    def begin(self) -> None:
        replicas = self._metadata()
        self._leader = replicas.leader
        (self._follower,) = set(replicas.replicas) - {self._leader}
        self._in_sync_up_to = self._log_end()
        self.side.affected.add(self._follower)
        self.side.cluster.pause(self._follower)

    def end(self) -> None:
        side = self.side
        self._await(lambda: self._metadata().isrs == [self._leader], "an ISR of the leader alone")
        alone_from = self._log_end()
        try:
            self._await(
                lambda: self._log_end() >= alone_from + _ALONE_OFFSETS, "records that the leader alone acknowledges"
            )
        except AssertionError as error:  # The stream copies too slowly for it: the fault is repeated.
            self.log(f"no election: {error}")
            side.cluster.resume(self._follower)
            side.affected.discard(self._follower)
            return
        acknowledged = self._log_end()
        side.affected.add(self._leader)
        side.cluster.kill(self._leader)
        before = self._epochs()
        side.cluster.resume(self._follower)
        side.affected.discard(self._follower)
        self._await(self._elected, "an unclean election")
        self._await(lambda: self._epochs() != before, "a leader epoch of the follower")
        begins = int(self._epochs()[-1].split()[1])
        self.count = max(0, acknowledged - begins)
        self.log(
            f"{self._topic}: in sync up to {self._in_sync_up_to}, acknowledged up to {acknowledged}; broker"
            f" {self._follower} leads from {begins} on: {self.effect}"
        )
        side.cluster.restart(self._leader)
        side.affected.discard(self._leader)

    @property
    def _topic(self) -> str:
        return f"{PREFIX}{self.context.topics.lossy}"

    def _metadata(self) -> Any:
        return self.side.metadata([self._topic])[self._topic, 0]

    def _log_end(self) -> int:
        """The high watermark: everything before it is acknowledged."""
        return ends(self.side.healthy_address, [(self._topic, 0)], committed=False)[0]

    def _elected(self) -> bool:
        if self._metadata().leader == self._follower:
            return True
        admin = self.side.admin()
        with contextlib.suppress(KafkaException, TimeoutError):  # The follower may not have registered yet.
            admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(self._topic, 0)]).result(CALL_S)
        return False

    def _epochs(self) -> list[str]:
        """Return the follower's lines of ``epoch, first offset``."""
        data = self.side.cluster.directory / f"broker-{self._follower}" / "data"
        return (data / f"{self._topic}-0" / "leader-epoch-checkpoint").read_text(encoding="ascii").splitlines()[2:]

    def _await(self, condition: Callable[[], bool], description: str) -> None:
        def holds() -> bool:
            with contextlib.suppress(KafkaException, TimeoutError, KeyError):
                return condition()
            return False

        eventually(holds, within_s=WITHIN_S, every_s=POLL_S, what=f"{description} of {self._topic}")
