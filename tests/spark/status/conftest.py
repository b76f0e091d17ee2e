"""The flow whose status is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.status_harness import StatusHarness, new_status_harness


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    return new_status_harness(tmp_path, monkeypatch)
