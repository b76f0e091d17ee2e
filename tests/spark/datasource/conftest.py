"""The stream whose epochs are planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.epochs_harness import EpochsHarness, new_epochs_harness


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpochsHarness:
    return new_epochs_harness(tmp_path, monkeypatch)
