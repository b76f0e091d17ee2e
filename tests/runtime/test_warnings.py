"""What works, but not as its user may think, is said once."""

from __future__ import annotations

import logging

import pytest

from mirror.client import Admin, Producer

NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": 100}


def test_initial_above_max_gives_constant_max_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    options = {**NOWHERE, "retry.backoff.ms": 2000, "retry.backoff.max.ms": 500}
    with Admin(options), Admin(options):
        pass
    (record,) = caplog.records
    assert record.getMessage() == (
        "retry.backoff.ms (2000) is above retry.backoff.max.ms (500): every wait is 500 ms, without growth"
    )


def test_unset_timeout_raised_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Producer({**NOWHERE, "request.timeout.ms": 130_000}):
        pass
    (record,) = caplog.records
    assert "delivery.timeout.ms is raised to 130100" in record.getMessage()


def test_nothing_is_said_of_the_defaults(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Producer(NOWHERE):
        pass
    assert not caplog.records
