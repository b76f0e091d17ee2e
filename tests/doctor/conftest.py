from __future__ import annotations

import pytest

from tests.spark.fakes import use_clusters


@pytest.fixture(autouse=True)
def clusters_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """See :mod:`tests.spark.fakes`."""
    use_clusters(monkeypatch)
