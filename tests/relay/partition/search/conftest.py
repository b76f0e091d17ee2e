from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.client import Consumer, TopicPartition
from mirror.relay.partition.search import position_search
from mirror.relay.progress.position import PositionQuery
from tests.relay.partition.search.search_site import Site


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(monkeypatch)
    yield site
    site.search.close()


@pytest.fixture
def sources_read(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Every source partition that a search reads."""
    found: list[TopicPartition] = []
    original = position_search._read_source

    def read(consumer: Consumer, query: PositionQuery, *more: Any) -> Any:
        found.append(query.source)
        return original(consumer, query, *more)

    monkeypatch.setattr(position_search, "_read_source", read)
    return found
