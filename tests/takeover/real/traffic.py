"""Records that keep coming into all topics of a site."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Producer

from tests.copying.writers import transactional
from tests.e2e.broker_side import WITHIN_S, failed_into
from tests.takeover.real.site import Log, MirrorMakerSite

_BETWEEN_S: Final = 0.02
_TRANSACTION: Final = 5
_ABORTED: Final = 3
"""Every third transaction is aborted."""


class Traffic:
    """Records that keep coming into all topics while the block runs; each has a number, so that no two are equal."""

    def __init__(self, site: MirrorMakerSite) -> None:
        self._site: Final = site
        self._over: Final = threading.Event()
        self._failures: Final = list[str]()
        self._thread: Final = threading.Thread(target=self._write, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        assert not self._failures, self._failures[0]

    def _write(self) -> None:
        site, number = self._site, 0
        plain = site.source.producer(linger_ms=0)
        within = transactional(site.source.address, f"{site.flow}-traffic")
        while not self._over.wait(_BETWEEN_S):
            for log in site.logs:
                if log.topic != site.transactions:
                    self._produce(plain, log, number)
            if number % _TRANSACTION == 0:
                within.begin_transaction()
                for at in range(_TRANSACTION):
                    self._produce(within, Log(site.transactions, 0), number + at)
                within.flush(WITHIN_S)
                aborted = number // _TRANSACTION % _ABORTED == 0
                (within.abort_transaction if aborted else within.commit_transaction)(WITHIN_S)
            plain.poll(0)
            number += 1
        if plain.flush(WITHIN_S):
            self._failures.append("records were not delivered")

    def _produce(self, producer: Producer, log: Log, number: int) -> None:
        producer.produce(
            log.topic,
            b"%d" % number,
            b"k%d" % (number % 7),
            log.partition,
            headers=[("n", b"%d" % (number % 3))],
            on_delivery=failed_into(self._failures),
        )
