"""Asks the source of a failover whether it answers, again and again, beside the steps."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.closing import Closing
from mirror.cluster.settings import ClusterSettings, address_text
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import cluster_options
from mirror.spark.clusters import is_away

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE_MS: Final = 5_000
"""A source that does not answer within so long is away."""
_PAUSE_S: Final = 1.0
"""Between two probes of an address."""
_FRESH_S: Final = PROBE_MS / 1000 + 2 * _PAUSE_S
"""An address that did not answer so long ago may answer now: this process may have been suspended since."""


class SourceProbe(Closing):
    """Whether a cluster answers, by each of its bootstrap addresses. Use it in one thread.

    Each step of a failover has to know that, and a probe of a dead address takes :data:`PROBE_MS`: the steps would wait
    for most of a failover. So the probes go on beside them, and a cluster that comes back is seen with the next one.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are the dotted keys of the cluster."""
        self._options: Final = options
        addresses = ClusterSettings.parse(cluster_options(options)).bootstrap
        self._addresses: Final = [*dict.fromkeys(map(address_text, addresses))]
        self._threads: Final[list[threading.Thread]] = []
        self._changed: Final = threading.Condition()
        # These are used with _changed.
        self._errors: Final[dict[str, str]] = {}
        """Why an address does not answer, by the last probe; empty: it does."""
        self._asked_s: Final[dict[str, float]] = {}
        """When the last probe of an address began (monotonic)."""
        self._unexpected: Exception | None = None
        self._clients: Final[dict[str, Admin]] = {}
        self._closed: Final = threading.Event()

    def why_away(self) -> str:
        """Return why no address answers; empty if one does, whatever it answers.

        The first call begins the probes, and waits for the first answer, or until each address had its time. Later ones
        wait for the next probe where the last one is too old. Raises what a probe has raised.
        """
        if not self._threads:
            for address in self._addresses:
                thread = threading.Thread(target=self._run, args=(address,), name=f"probe-{address}", daemon=True)
                self._threads.append(thread)
                thread.start()
        with self._changed:
            self._changed.wait_for(self._is_known)
            errors, unexpected = [*self._errors.values()], self._unexpected
            self._unexpected = None
        if unexpected is not None:
            raise unexpected
        return errors[0] if all(errors) else ""

    def close(self) -> None:
        """End the probes."""
        with self._changed:
            self._closed.set()
            clients = [*self._clients.values()]
        for client in clients:
            client.close()  # which ends its call
        for thread in self._threads:
            thread.join()

    def _is_known(self) -> bool:
        oldest_s = time.monotonic() - _FRESH_S
        is_away = all(self._asked_s.get(address, oldest_s) > oldest_s for address in self._addresses)
        return is_away or not all(self._errors.values()) or self._unexpected is not None

    def _run(self, address: str) -> None:
        while not self._closed.is_set():
            error = ""
            unexpected: Exception | None = None
            asked_s = time.monotonic()
            try:
                error = self._ask(address)
            except Exception as raised:  # noqa: BLE001 - the caller waits for it
                unexpected = raised
            with self._changed:
                self._errors[address] = error
                self._asked_s[address] = asked_s
                self._unexpected = self._unexpected or unexpected
                self._changed.notify_all()
            self._closed.wait(_PAUSE_S)

    def _ask(self, address: str) -> str:
        try:
            with Admin({**self._options, "bootstrap.servers": address}) as client:
                with self._changed:
                    if self._closed.is_set():
                        return "closed"
                    self._clients[address] = client
                client.describe_cluster(timeout_ms=PROBE_MS)
        except KafkaError as error:
            return str(error) if is_away(error) else ""
        return ""
