"""Two clusters of three brokers, their proxies and networks, an expired certificate, and small disks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests import jvm
from tests.campaign.chaos.broker_network import LISTENER, BrokerNetwork, NetworkedCluster
from tests.campaign.chaos.kafka_side import CALL_S, KafkaSide
from tests.campaign.chaos.mount_namespace import SmallDisk
from tests.campaign.chaos.schedule import BROKERS, SMALL_DISK
from tests.faults.proxy import Proxy
from tests.security.certificates import Authority

TLS: Final = "TLS"
_DISK_MB: Final = 400
_KEY_STORE: Final = "listener.name.tls.ssl.keystore.location"
_HEADER_BYTES: Final = 64
"""Enough of a request to see which client has sent it."""
PROPERTIES: Final = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    # A partition of the network shrinks the ISR within its duration.
    "replica.lag.time.max.ms": "6000",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    # The data of a round is deleted soon after its topics.
    "log.segment.delete.delay.ms": "1000",
    # The timestamps of the records lie in the past.
    "log.retention.ms": "-1",
}


class Clusters:
    """The source and the target of all rounds."""

    def __init__(self, source: KafkaSide, target: KafkaSide, certificates: Mapping[str, Path]) -> None:
        self.source: Final = source
        self.target: Final = target
        self._certificates: Final = certificates

    def configuration(self, side: KafkaSide, *, tls: bool = False) -> dict[str, object]:
        """Return the keys that reach a cluster through its proxy, or by TLS without a proxy."""
        if not tls:
            return {"bootstrap.servers": side.proxy.bootstrap_servers}
        return {
            "bootstrap.servers": side.cluster.bootstrap(TLS),
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self._certificates["authority"]),
        }

    def set_certificate(self, broker: int, name: str) -> None:
        """Have the target's ``broker`` present the certificate ``valid`` or ``expired`` to new connections."""
        path = str(self._certificates[name])
        entry = ConfigEntry(_KEY_STORE, path, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin = self.target.admin()
        admin.incremental_alter_configs([resource])[resource].result(CALL_S)


def _certificates(folder: Path) -> dict[str, Path]:
    authority = Authority(folder, "authority")
    # Both have the same name: a running broker accepts no certificate of another name.
    expired = folder / "expired.pem"
    shutil.copyfile(authority.identity("broker", "127.0.0.1", "localhost", expired=True).path, expired)
    valid = authority.identity("broker", "127.0.0.1", "localhost").path
    return {"authority": authority.path, "valid": valid, "expired": expired}


@contextlib.contextmanager
def open_clusters(folder: Path, *, mounts: bool) -> Iterator[Clusters]:
    """Start everything, with all files in ``folder``, and stop it in any case. ``mounts``: small disks are possible."""
    certificates = _certificates(folder)
    tls = {"listener.name.tls.ssl.keystore.type": "PEM", _KEY_STORE: str(certificates["valid"])}
    with contextlib.ExitStack() as stack:
        sides = []
        for name in ("source", "target"):
            with_tls = name == "target"
            cluster = stack.enter_context(
                NetworkedCluster(
                    stack.enter_context(BrokerNetwork()),
                    BROKERS,
                    directory=folder / name,
                    properties=PROPERTIES | (tls if with_tls else {}),
                    listeners={LISTENER: "PLAINTEXT"} | ({TLS: "SSL"} if with_tls else {}),
                    heap=jvm.BROKER,
                )
            )
            proxy = stack.enter_context(Proxy(cluster.bootstrap_servers, keep_bytes=_HEADER_BYTES))
            disk = stack.enter_context(SmallDisk(cluster, SMALL_DISK, _DISK_MB)) if mounts else None
            sides.append(KafkaSide(name, cluster, proxy, disk))
        yield Clusters(sides[0], sides[1], certificates)
