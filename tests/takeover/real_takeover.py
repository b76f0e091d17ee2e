"""Whole takeovers from real MirrorMaker 2 and back, compared record by record."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

import pytest

from tests.polling import eventually
from tests.takeover.mirrormaker_site import MirrorMakerSite, Traffic, kill

RECORDS = 100
"""So many are copied at least before MirrorMaker 2 is stopped."""


class Way(NamedTuple):
    """How MirrorMaker 2 runs."""

    exactly_once: bool = False
    identity: bool = False

    def __str__(self) -> str:
        return f"{'exactly-once' if self.exactly_once else 'plain'}-{'identity' if self.identity else 'default'}"


WAYS = [Way(once, identity) for once in (False, True) for identity in (False, True)]
all_ways = pytest.mark.parametrize("site", WAYS, ids=str, indirect=True)


def interrupted(site: MirrorMakerSite, after_s: float | None) -> None:
    """Run MirrorMaker 2, and kill it some time after it has begun to copy; None: stop it in order."""
    with site.mirrormaker() as process:
        site.await_copied(site.logs, RECORDS)
        if after_s is not None:
            eventually(lambda: site.stored() >= len(site.logs), what="stored positions", every_s=0.2)
        if after_s is not None:
            time.sleep(after_s)
            kill(process)


def taken_over(site: MirrorMakerSite, after_s: float | None) -> int:
    """Take over from an interrupted MirrorMaker 2 while records keep coming; return how many it had doubled."""
    with Traffic(site):
        interrupted(site, after_s)
        dry_run = site.takeover("--dry-run")
        before, ends = site.extras(), site.target_ends()
        report = site.takeover()
        assert [(one["topic"], one["partition"]) for one in report["partitions"]] == [
            (one["topic"], one["partition"]) for one in dry_run["partitions"]
        ]
        site.copy()
    site.copy()
    for log, extras in site.extras().items():
        assert extras.missing == Counter(), f"{log}: {extras.missing.total()} records are missing"
        if log.topic == site.compact:
            continue  # records may be repeated so that each key gets its last value
        doubled = extras.doubled - before[log].doubled
        assert doubled == Counter(), f"{log}: {doubled.total()} records are doubled by the takeover"
        assert site.ends_in_order(log, ends[log]), log
    assert site.last_values()
    if site.exactly_once:
        assert not any(extras.doubled for extras in before.values())
    # By default it copies aborted transactions, too, which the source's readers do not see.
    return sum(extras.doubled.total() for log, extras in before.items() if log.topic != site.transactions)


def handed_back(site: MirrorMakerSite) -> None:
    """Have MirrorMaker 2 go on behind the flow: it copies what is new, and nothing twice."""
    before = site.extras()
    report = site.takeover("--back")
    assert {one["outcome"] for one in report["partitions"]} == {"handed-back"}
    ends = site.target_ends()
    with site.mirrormaker():
        with Traffic(site):
            site.await_copied(site.logs, RECORDS)
        site.await_caught_up()
    for log, extras in site.extras().items():
        assert extras.missing == Counter(), f"{log}: {extras.missing.total()} records are missing"
        if site.exactly_once or log.topic != site.transactions:  # it copies aborted transactions
            doubled = extras.doubled - before[log].doubled
            assert doubled == Counter(), f"{log}: {doubled.total()} records are doubled by MirrorMaker 2"
            assert site.ends_in_order(log, ends[log]), log
