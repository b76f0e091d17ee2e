"""Errors of the driver's scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from mirror.spark.driver.batch_job import Interrupted
from mirror.spark.driver.output.error_report import interruptions_kept


@contextlib.contextmanager
def raising_at_its_end() -> Iterator[None]:
    """As PySpark's SCCallSiteSync does when the JVM has gone."""
    try:
        yield
    finally:
        raise ConnectionRefusedError("the JVM has gone")


def test_an_interruption_is_raised_although_another_error_replaces_it() -> None:
    with pytest.raises(Interrupted) as found, interruptions_kept(), raising_at_its_end():
        raise Interrupted(15)
    assert found.value.signum == 15


def test_an_error_that_replaces_an_error_is_raised_as_it_is() -> None:
    with pytest.raises(ConnectionRefusedError), interruptions_kept(), raising_at_its_end():
        raise ValueError("of the job")
    with pytest.raises(Interrupted), interruptions_kept():
        raise Interrupted(2)
