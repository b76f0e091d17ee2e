"""Speculation in a stream, on a real cluster: `make speculation`. The suite has that of a scheduled run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site
from tests.e2e.standalone import Standalone
from tests.e2e.test_on_a_cluster import WITHIN_S, Flow, cores, executors, speculating, taken_over
from tests.polling import eventually

__all__ = ["executors"]
pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def test_speculation_in_a_stream_copies_nothing_twice(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    """Each epoch's one task gets another attempt after a second, on the other worker, while it still copies."""
    one = Flow(site, source, target, unique("orders"), 2, executors)
    # Long enough for the other one, in a Python of its own, to take over.
    one.prepare("epoch-ms = 8000")
    events = site.folder / "events"
    with Feed(source, one.topic, one.partitions, 200) as feed:
        stream = one.start("stream", "report", cores(2), speculating(events, after="1s"))
        eventually(lambda: taken_over(events), within_s=WITHIN_S, what="an epoch that the later attempt ended")
        one.await_progress(feed.end(), stream, "the rest")
    stopped = one.stop()
    assert (stopped.status, stopped.errors) == (0, [])
    last = site.finish(stream)
    assert (last.status, last.errors) == (0, [])
    verdict = one.equal()
    assert verdict.equal, verdict.difference
    assert verdict.records == sum(feed.ends())
