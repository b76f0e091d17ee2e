"""What a copy that lives for months must notice: topics that are configured otherwise, and refusals that are over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import COPYING
from mirror.relay.model.way import Way
from mirror.relay.partition.across_attempts import retry
from mirror.relay.task import reporting, topic_rules
from mirror.wire.api import Api
from tests.polling import eventually
from tests.relay.job_site import JobSite

HOUR_MS = 3_600_000


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSite]:
    monkeypatch.setattr(topic_rules, "_MS_PER_TOPIC", 0)
    monkeypatch.setattr(topic_rules, "_MIN_REFRESH_MS", 20)
    for name in ("FAILURE_BACKOFF_MS", "FAILURE_BACKOFF_MAX_MS"):
        monkeypatch.setattr(retry, name, 50)
    for name in ("ROUND_MS", "URGENT_ROUND_MS"):
        monkeypatch.setattr(reporting, name, 50)
    site = JobSite(monkeypatch, [[0]], by="auto")
    yield site
    site.end()


def rules_read(site: JobSite) -> None:
    """Wait until the rules were read that apply now."""
    calls = len(site.pair.source.calls(Api.DESCRIBE_CONFIGS))
    eventually(lambda: len(site.pair.source.calls(Api.DESCRIBE_CONFIGS)) >= calls + 3, what="the configurations")


def test_the_way_follows_the_configuration_of_the_topic(site: JobSite) -> None:
    site.begin(0, refresh_ms=20)
    configs = site.pair.source.topics["t"].configs
    for policy, way in (("delete", Way.SEQUENCES), ("compact", Way.TRANSACTIONS), ("delete", Way.SEQUENCES)):
        configs["cleanup.policy"] = policy
        rules_read(site)
        site.write(0)
        site.committed()
        assert site.progress(0).way is way, policy
    (result,) = site.stop()[0, 0]
    assert (result.outcome, result.records, result.retries) == (Outcome.COMPLETE, 3, 0)
    site.check()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_that_was_too_large_is_copied_once_the_target_takes_it(site: JobSite, at_once: bool) -> None:
    configs = site.pair.target.topics["paris.t"].configs
    configs["max.message.bytes"] = "1000"
    if at_once:
        site.write(0)
        site.write(0, 5_000)
        site.begin(0, refresh_ms=HOUR_MS)
    else:
        site.begin(0, refresh_ms=HOUR_MS)
        site.write(0)
        site.committed()
        site.write(0, 5_000)
    eventually(lambda: site.reported(0)[-1:] and site.reported(0)[-1].state == Outcome.FAILED, what="the failure")
    assert "larger than the target" in str(site.reported(0)[-1].result.error)
    configs["max.message.bytes"] = "1000000"
    site.write(0)
    site.committed()
    eventually(lambda: site.reported(0)[-1].state == COPYING, what="the recovery")
    (result,) = site.stop()[0, 0]
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 3)
    site.check()
