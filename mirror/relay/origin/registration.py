"""Registers the producer ids of a task on the cluster that it writes to, before the first batch under each."""

from __future__ import annotations

import logging
import threading
from typing import Final

from mirror.backoff import Backoff
from mirror.client import Admin
from mirror.cluster.events import as_kafka_error
from mirror.errors import KafkaError
from mirror.producer.id_gate import AdmitId
from mirror.relay.origin.records import REGISTRY_TOPIC, producer_records
from mirror.relay.origin.registered_ids import RegistryVersion, registered_ids
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.runtime.clock import SystemClock, process_rng

_log: Final = logging.getLogger(__name__)

_WRITE_TIMEOUT_MS: Final = 30_000


def open_registration(registry: FlowTopic, flow: str, admin: Admin, timeout_ms: int) -> IdRegistration:
    """Return what registers the producer ids of ``flow``, but for those that this process has registered before.

    After another election these are registered again: it may have been unclean.
    """
    try:
        topic = admin.describe_topics([REGISTRY_TOPIC], timeout_ms=timeout_ms).get(REGISTRY_TOPIC)
    except KafkaError as error:
        _log.info("%s could not be described, so all producer ids are registered again: %s", REGISTRY_TOPIC, error)
        topic = None
    if topic is None:
        return IdRegistration(registry, flow, set())
    version = RegistryVersion(str(topic.topic_id or ""), topic.partitions[registry.tp.partition].leader_epoch)
    return IdRegistration(registry, flow, registered_ids.of(registry.settings, version))


class IdRegistration:
    """Writes producer ids to the registry, together those that are waiting, and then lets them be used.

    It retries with backoff (KIP-580) until it is closed: batches that wait for an id expire by their own
    ``delivery.timeout.ms``.
    """

    def __init__(self, registry: FlowTopic, flow: str, registered: set[int]) -> None:
        """``registered`` are ids that need no registration; those that are registered are added."""
        self._registry: Final = registry
        self._flow: Final = flow
        self._lock: Final = threading.Lock()
        self._waiting: dict[int, list[AdmitId]] = {}
        self._registered: Final = registered
        self._running = False
        self._closed: Final = threading.Event()
        cluster = registry.settings
        self._backoff: Final = Backoff(cluster.retry_backoff_ms, cluster.retry_backoff_max_ms, process_rng())

    def close(self) -> None:
        """Write nothing more; what waits is not admitted."""
        self._closed.set()

    def on_producer_id(self, producer_id: int, admit: AdmitId) -> None:
        """Register ``producer_id``, then call ``admit``. Does not wait."""
        with self._lock:
            if producer_id not in self._registered:
                self._waiting.setdefault(producer_id, []).append(admit)
                if not self._running:
                    self._running = True
                    threading.Thread(target=self._write_all, name="mirror-registration", daemon=True).start()
                return
        admit()

    def _write_all(self) -> None:
        failures = 0
        while (waiting := self._take_waiting()) is not None:
            try:
                records = producer_records(waiting, self._flow, SystemClock().unix_ms())
                errors = self._registry.write(records, _WRITE_TIMEOUT_MS)
            except Exception as unexpected:  # noqa: BLE001 - without this thread no id would be registered any more
                errors = dict.fromkeys(waiting, as_kafka_error(unexpected))
            self._on_written(waiting, errors)
            if not errors:
                failures = 0
                continue
            failures += 1
            if failures == 1:
                error = next(iter(errors.values()))
                _log.warning("producer ids cannot be registered in %s, so nothing is sent: %s", REGISTRY_TOPIC, error)
            self._closed.wait(self._backoff.after(failures) / 1000)

    def _take_waiting(self) -> dict[int, list[AdmitId]] | None:
        """Return what waits; None, and this thread ends, if there is nothing."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._running = bool(waiting) and not self._closed.is_set()
            return waiting if self._running else None

    def _on_written(self, waiting: dict[int, list[AdmitId]], errors: dict[int, KafkaError]) -> None:
        with self._lock:
            self._registered.update(waiting.keys() - errors.keys())
            for producer_id in errors:
                self._waiting.setdefault(producer_id, [])[:0] = waiting[producer_id]
        for producer_id in waiting.keys() - errors.keys():
            for admit in waiting[producer_id]:
                try:
                    admit()
                except Exception as error:  # noqa: BLE001 - a client that has ended must not keep the others waiting
                    _log.warning("producer id %d is registered, but not in use: %s", producer_id, error)
