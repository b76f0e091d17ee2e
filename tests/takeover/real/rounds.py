"""Whole takeovers from real MirrorMaker 2 and back, compared record by record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from tests.polling import eventually
from tests.takeover.real.comparison import Comparison
from tests.takeover.real.site import FLUSH_MS, Log, MirrorMakerSite, kill
from tests.takeover.real.traffic import Traffic

RECORDS: Final = 100
"""So many are copied at least before MirrorMaker 2 is stopped."""
_TWICE: Final = 1 / 3
"""How often it is killed twice, so that it has copied records again itself."""


class Way(NamedTuple):
    """How MirrorMaker 2 runs."""

    exactly_once: bool = False
    identity: bool = False

    def __str__(self) -> str:
        return f"{'exactly-once' if self.exactly_once else 'plain'}-{'identity' if self.identity else 'default'}"


WAYS: Final = [Way(once, identity) for once in (False, True) for identity in (False, True)]


def drawn_kills(rng: Random) -> list[float]:
    """Draw when MirrorMaker 2 is killed, in seconds after it has begun to copy."""
    return [rng.uniform(0, 1.5 * FLUSH_MS / 1000) for _ in range(2 if rng.random() < _TWICE else 1)]


class TakenOver(NamedTuple):
    """What was found after a takeover."""

    records: int
    """How many there are in the target."""
    doubled: int
    """How many of them MirrorMaker 2 had doubled itself since the last comparison."""


class Rounds:
    """Takeovers and hand backs of one site, each compared; ``doubled`` counts what MirrorMaker 2 has doubled so far."""

    def __init__(self, site: MirrorMakerSite) -> None:
        self._site: Final = site
        self._doubled = 0

    def take_over(self, kills: Sequence[float]) -> TakenOver:
        """Take over from MirrorMaker 2 while records keep coming; AssertionError if something is not as it must be.

        It is killed so many seconds after each start; without ``kills`` it is stopped in order.
        """
        site = self._site
        with Traffic(site):
            _interrupt(site, kills)
            dry_run, ends = site.dry_run(), site.target_ends()
            epochs = site.task_epochs() if site.exactly_once else {}
            report = site.takeover()
            _same_decisions(dry_run, report)
            if site.exactly_once:
                fenced = site.task_epochs()
                assert all(fenced[task] > epoch for task, epoch in epochs.items()), f"not fenced: {epochs}, {fenced}"
            site.copy()
        site.copy()
        doubled = self._check(ends, "takeover") - self._doubled
        self._doubled += doubled
        if site.exactly_once or len(kills) <= 1:
            # So it has also continued without a double where a flow was handed back to it before.
            assert doubled == 0, f"MirrorMaker 2 has doubled {doubled} records, although it began once"
        return TakenOver(sum(site.target_ends().values()), doubled)

    def hand_back(self) -> None:
        """Have MirrorMaker 2's positions written."""
        report = self._site.takeover("--back")
        outcomes = {one["outcome"] for one in report["partitions"]}
        assert outcomes == {"handed-back"}, report

    def go_on(self) -> None:
        """Have MirrorMaker 2 go on behind a flow that was handed back: it copies what is new, and nothing twice."""
        site, ends = self._site, self._site.target_ends()
        with site.mirrormaker():
            with Traffic(site):
                site.await_copied(site.logs, RECORDS)
            site.await_caught_up()
        assert self._check(ends, "MirrorMaker 2 after the hand back") == self._doubled

    def _check(self, ends: Mapping[Log, int], by: str) -> int:
        """Compare the clusters; return how many records are doubled in front of ``ends``, and check all else."""
        site = self._site
        found = site.compared(ends)
        wrong = [f"{log}, {by}: {line}" for log, one in found.items() for line in self._wrong(log, one)]
        if not site.last_values():
            wrong.append(f"{site.compact}, {by}: the last value of a key is another one")
        assert not wrong, "; ".join(wrong)
        return sum(one.doubled_before for one in found.values())

    def _wrong(self, log: Log, one: Comparison) -> list[str]:
        # By default MirrorMaker 2 copies aborted transactions, too, which the source's readers do not see.
        copies_aborted = not self._site.exactly_once and log.topic == self._site.transactions
        checks = {
            f"{one.missing.total()} records are missing": not one.missing,
            f"{one.doubled_behind} records are doubled": not one.doubled_behind,
            f"{one.foreign.total()} records are not the source's": copies_aborted or not one.foreign,
            "the order is another one": one.in_order,
        }
        return [line for line, holds in checks.items() if not holds]


def _interrupt(site: MirrorMakerSite, kills: Sequence[float]) -> None:
    if not kills:
        with site.mirrormaker():
            site.await_copied(site.logs, RECORDS)
    for after_s in kills:
        with site.mirrormaker() as process:
            site.await_copied(site.logs, RECORDS)
            eventually(lambda: site.stored() >= len(site.logs), what="stored positions", every_s=0.2)
            time.sleep(after_s)
            kill(process)


def _same_decisions(dry_run: Mapping[str, object], report: Mapping[str, object]) -> None:
    """Check that the takeover has done what the dry run had said of partitions that it could settle."""
    said, done = (
        {
            (one["topic"], one["partition"]): (one["outcome"], one["next_offset"])
            for one in document["partitions"]  # type: ignore[attr-defined]
        }
        for document in (dry_run, report)
    )
    assert said.keys() == done.keys()
    differences = {key: (said[key], done[key]) for key in said if said[key] != done[key]}
    assert all(before[0] == "unsettled" for before, _ in differences.values()), differences
