"""Has a JVM write an archive of the classes that a broker loads (JEP 350), so that the tests' clusters start quickly.

    python tests/broker_archive.py FILE

What it was made with (the JVM, the broker's jars) has to be the same: otherwise a JVM does without.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.e2e.broker_side import CODECS, Side
from tests.polling import eventually

_WRITTEN_WITHIN_S: Final = 120.0
_PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def rehearse(side: Side) -> None:
    """Use what most tests use: topics, codecs, transactions, groups, configurations, ACLs."""
    side.create("topic", 2, cleanup_policy="compact")
    for codec in CODECS:
        side.fill("topic", [b"value"] * 10, compression_type=codec)
    producer = side.producer(transactional_id="id")
    producer.init_transactions(60)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("topic", b"value", b"key")
        producer.flush(60)
        finish(60)
    side.read("topic")
    side.progress("flow", "topic")
    side.config("topic")
    side.acl(ResourceType.TOPIC, "topic", AclOperation.ALL, AclPermissionType.ALLOW)
    side.grow("topic", 3)
    side.delete("topic")


def main(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    with Cluster(properties=_PROPERTIES, heap=(*jvm.PLAIN_BROKER, *jvm.archiving(part))) as cluster:
        rehearse(Side(cluster.bootstrap_servers))
        # It writes when it ends, and may take longer than the sandbox waits for that.
        os.kill(cluster.pids[1], signal.SIGTERM)
        eventually(lambda: not cluster.pids, within_s=_WRITTEN_WITHIN_S, what="the end of the broker")
    part.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
