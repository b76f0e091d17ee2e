"""Options of the two data sources, as somebody in a notebook gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import ConfigError
from mirror.spark.datasource.options import DEFAULT_PARALLELISM, FlowOptions
from mirror.spark.ledger.ledger import Ledger

GIVEN = {"config": "mirror.toml", "flow": "f", "ledger": "l"}


def test_options_are_read_with_their_defaults() -> None:
    found = FlowOptions.from_spark({**GIVEN, "checkpointLocation": "c", "queryName": "q", "Secrets-Dir": "s"})
    assert found == FlowOptions(Path("mirror.toml"), "f", Path("l"), Path("s"), DEFAULT_PARALLELISM, "")
    assert FlowOptions.from_spark(found.to_spark()) == found


def test_every_option_that_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        FlowOptions.from_spark({"config": "mirror.toml", "Flows": "f", "path": "x", "parallelism": "0"})
    where = "options of mirror-ranges and mirror"
    folder = "a folder for plans and results, such as mirror-report/ledger/FLOW/notebook"
    known = "the options are: config, flow, ledger, secrets-dir, parallelism, run"
    assert str(refused.value).splitlines() == [
        f"{where}: flow = (not set): required: the name of a flow in it",
        f"{where}: ledger = (not set): required: {folder}",
        f'{where}: flows = ***: no such option; did you mean "flow"?; {known}',
        f"{where}: path = ***: no such option; {known}",
        f'{where}: parallelism = "0": must be a whole number from 1',
    ]


def test_a_ledger_that_is_not_there_yet_has_no_run_before(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "ledger" / "f" / "notebook").previous_run() is None
