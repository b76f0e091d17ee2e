"""The site of the rounds over whole copies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.groups.sync_site import Site
from tests.relay.fake_pair import FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    pair = FakePair(monkeypatch)
    log = pair.source.log("t")
    # Every tenth offset is that of a record of an aborted transaction, or its marker.
    for first in range(0, 250, 10):
        log.append_values(*(b"%d" % number for number in range(first, first + 8)))
        log.append_values(b"x", attributes=0x10, producer_id=7)
        log.end_transaction(7, commit=False)
    pair.copy()
    site = Site(pair)
    yield site
    site.close()
