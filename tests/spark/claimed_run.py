"""A run that has claimed its flow on a fake target, without the thread that follows its control record."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

from mirror.client import Admin
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision.control_record_thread import ClaimedRun


class _Control:
    """Renews the record in the thread of the caller."""

    def __init__(self, client: RunControlClient) -> None:
        self._client = client

    def request(self) -> Future[None]:
        future = Future[None]()
        try:
            self._client.sync()
            future.set_result(None)
        except Exception as error:  # noqa: BLE001 - as the thread
            future.set_exception(error)
        return future


def claimed_run(run: str, target: object = None) -> ClaimedRun:
    """A run of flow ``f``."""
    client = RunControlClient(cast("Any", target or Admin({"bootstrap.servers": "b:1"})), "f", run)
    client.claim()
    return ClaimedRun(cast("Any", _Control(client)), client, bool)
