"""MirrorMaker 2's source connector in a worker of Kafka Connect, which its users configure by REST."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from mirror.sandbox.process import Process
from tests.e2e.connect_worker import Worker
from tests.takeover.real.site import FLUSH_MS, TASKS, TRANSACTION_MS, MirrorMakerSite

_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


class ConnectSite(MirrorMakerSite):
    """The worker goes on while the connector is stopped; it is started again after it was killed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._group: Final = f"workers-{self.flow}"
        self._connector: Final = f"copy {self.flow}"
        self._session_ms: Final = self.settings[f"{self.other}.session.timeout.ms"]
        self._worker: Worker | None = None
        self.positions = f"{self._group}-offsets"
        self.tasks = f"{self._group}-{self._connector}"
        self.options.extend(["--offsets-topic", self.positions])

    def close(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            self._worker.close()

    @contextlib.contextmanager
    def mirrormaker(self) -> Iterator[Process]:
        """The connector runs while the block does; it is stopped in order at the end, unless the worker was killed."""
        if self._worker is None or not self._worker.process.alive():
            self._worker = self._start()
        worker = self._worker
        worker.run(self._connector, self._config())
        yield worker.process
        if worker.process.alive():
            worker.stop(self._connector)

    def _start(self) -> Worker:
        settings = {
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": str(FLUSH_MS),
            "session.timeout.ms": self._session_ms,
            "heartbeat.interval.ms": str(int(self._session_ms) // 6),
            "producer.transaction.timeout.ms": str(TRANSACTION_MS),
            "exactly.once.source.support": "enabled" if self.exactly_once else "disabled",
        }
        return Worker(self.folder, "worker", self.target.address, self._group, settings)

    def _config(self) -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": self.alias,
            "target.cluster.alias": self.other,
            "source.cluster.bootstrap.servers": self.source.address,
            "target.cluster.bootstrap.servers": self.target.address,
            "source.consumer.isolation.level": "read_committed" if self.exactly_once else "read_uncommitted",
            "topics": ",".join(self.topics),
            "tasks.max": str(TASKS),
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
        }
