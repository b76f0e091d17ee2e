"""The flow whose status is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.client import TopicPartition
from mirror.spark.status import status_reader
from tests.spark import fakes
from tests.spark.flow_harness import use_fakes
from tests.spark.status_harness import StatusHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.client import OffsetResult, Outcomes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    use_fakes(tmp_path, monkeypatch)
    site = StatusHarness(tmp_path)

    class Admin(fakes.Admin):
        def __init__(self, options: Mapping[str, object]) -> None:
            super().__init__(options)
            site.options.append(options)

        def list_offsets(
            self,
            asked: Mapping[TopicPartition, int],
            *,
            isolation: str = "read_committed",
            partial: bool = False,
            timeout_ms: int | None = None,
        ) -> Outcomes[TopicPartition, OffsetResult]:
            site.asked += asked.values()
            return super().list_offsets(asked, isolation=isolation, partial=partial, timeout_ms=timeout_ms)

    monkeypatch.setattr(status_reader, "Admin", Admin)
    return site
