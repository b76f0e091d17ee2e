"""How long ``send`` may block, from its settings (KIP-912)."""

from __future__ import annotations

import pytest

from mirror.producer.blocking import BlockBudget
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS

_SPLIT = {"max.block.ms.include.metadata": False}
_METADATA_TAKES_MS = 3_000


def _budget(**options: object) -> BlockBudget:
    return BlockBudget(ProducerSettings.parse({"bootstrap.servers": "one:9092", **options}))


def test_default_counts_metadata_wait_in_max_block() -> None:
    budget = _budget()
    assert budget.metadata_ms() == 60_000
    assert (budget.append_ms(0), budget.append_ms(20_000), budget.append_ms(70_000)) == (60_000, 40_000, 0)
    assert budget.append_limit(20_000) == "max.block.ms (60000), of which metadata took 20000"


def test_split_gives_the_append_its_full_max_block() -> None:
    budget = _budget(**_SPLIT, **{"max.block.ms": 1_000})
    assert (budget.metadata_ms(), budget.append_ms(50_000)) == (60_000, 1_000)
    assert (budget.metadata_limit(), budget.append_limit(9)) == ("max.block.metadata.ms (60000)", "max.block.ms (1000)")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        pytest.param({"max.block.ms": 10_000}, True, id="1"),
        pytest.param({"max.block.ms": 1_000}, False, id="2"),
        pytest.param({"max.block.ms": 10_000, **_SPLIT, "max.block.metadata.ms": 60_000}, True, id="3"),
        pytest.param({"max.block.ms": 1_000, **_SPLIT, "max.block.metadata.ms": 5_000}, True, id="4"),
        pytest.param({"max.block.ms": 1_000, **_SPLIT, "max.block.metadata.ms": 1_000}, False, id="5"),
    ],
)
def test_the_five_cases(options: dict[str, object], sent: bool) -> None:
    budget = _budget(**options)
    found = budget.metadata_ms() > _METADATA_TAKES_MS
    assert found is sent
    if found:
        assert budget.append_ms(_METADATA_TAKES_MS) >= 1_000, "memory is there at once"


def test_the_longest_and_the_shortest_time() -> None:
    forever = _budget(**{"max.block.ms": FOREVER_MS})
    assert (forever.metadata_ms(), forever.append_ms(1_000)) == (FOREVER_MS, FOREVER_MS - 1_000)
    never = _budget(**{"max.block.ms": 0})
    assert (never.metadata_ms(), never.append_ms(0), never.append_ms(5)) == (0, 0, 0)
    assert never.metadata_limit() == "max.block.ms (0)"
