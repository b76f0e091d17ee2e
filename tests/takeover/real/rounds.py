"""Whole takeovers from real MirrorMaker 2 and back, compared record by record."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
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
_START_UP_S: Final = 12.0
"""From a start of its process until it copies, MirrorMaker 2 takes about so long."""


class Way(NamedTuple):
    """How MirrorMaker 2 runs, and how the flow copies."""

    exactly_once: bool = False
    identity: bool = False
    transactions: bool = False
    """The flow is exactly once by transactions only."""

    def __str__(self) -> str:
        words = "exactly-once" if self.exactly_once else "plain", "identity" if self.identity else "default"
        return "-".join((*words, "transactions") if self.transactions else words)


WAYS: Final = [
    *(Way(once, identity) for once in (False, True) for identity in (False, True)),
    *(Way(once, transactions=True) for once in (False, True)),
]


class Moment(enum.StrEnum):
    """From when on the seconds until a kill are counted."""

    STARTED = "start"
    """MirrorMaker 2 has its own topics: it is killed while its connectors and tasks begin."""
    COPIED = "first copy"
    """It has copied something, and perhaps stored no position of it."""
    STORED = "stored position"
    """It has stored positions."""


class Kill(NamedTuple):
    """When MirrorMaker 2 is killed."""

    after_s: float
    moment: Moment = Moment.STORED

    def __str__(self) -> str:
        return f"{self.after_s:.2f} s after {self.moment}"


_LONGEST_S: Final = {
    Moment.STARTED: _START_UP_S,
    Moment.COPIED: FLUSH_MS / 2000,
    Moment.STORED: 1.5 * FLUSH_MS / 1000,
}


def drawn_kills(rng: Random) -> list[Kill]:
    """Draw when MirrorMaker 2 is killed, once or twice."""
    moments = rng.choices([*Moment], weights=(1, 1, 2), k=2 if rng.random() < _TWICE else 1)
    return [Kill(rng.uniform(0, _LONGEST_S[moment]), moment) for moment in moments]


class TakenOver(NamedTuple):
    """What was found after a takeover."""

    records: int
    """How many there are in the target."""
    doubled: int
    """How many of them MirrorMaker 2 had doubled itself since the last comparison."""
    unmatched: int
    """How many records of the compacted topic it had copied that were all gone from the source, without a position."""


class Rounds:
    """Takeovers and hand backs of one site, each compared.

    A record that is doubled counts as MirrorMaker 2's own only if it lies, with its copy before, in a range that
    nothing else has written: it has copied again what it had copied itself since its last start behind the flow.
    """

    def __init__(self, site: MirrorMakerSite) -> None:
        self._site: Final = site
        self._doubled = 0
        self._own: Final = {log: list[range]() for log in site.logs}
        self._begins = dict.fromkeys(site.logs, 0)

    def take_over(
        self, kills: Sequence[Kill], before: Callable[[], object] = lambda: None, *, begins_again: bool = False
    ) -> TakenOver:
        """Take over from MirrorMaker 2 while records keep coming; AssertionError if something is not as it must be.

        It is killed after each start; without ``kills`` it is stopped in order. ``before`` is called between the dry
        run and the takeover. ``begins_again``: it doubles records that it had copied before.
        """
        site = self._site
        with Traffic(site):
            _interrupt(site, kills)
            dry_run, ends = site.dry_run(), site.target_ends()
            tasks = site.task_transactions() if site.exactly_once else {}
            before()
            report = site.takeover()
            _same_decisions(dry_run, report)
            for log, end in ends.items():
                self._own[log].append(range(self._begins[log], end))
            if site.exactly_once:
                fenced = site.task_transactions()
                assert all(
                    fenced[task].state == "Empty" and fenced[task].producer_epoch > one.producer_epoch
                    for task, one in tasks.items()
                ), f"not fenced: {tasks}, {fenced}"
            site.copy()
        site.copy()
        doubled = self._check("takeover") - self._doubled
        self._doubled += doubled
        if not begins_again and (site.exactly_once or len(kills) <= 1):
            assert doubled == 0, f"MirrorMaker 2 has doubled {doubled} records, although it began once"
        unmatched = sum(
            one["unmatched"]
            for one in report["partitions"]
            if one["outcome"] == "settled" and one["stored"] is None and not one["copies"]
        )
        return TakenOver(sum(site.target_ends().values()), doubled, unmatched)

    def hand_back(self) -> None:
        """Have MirrorMaker 2's positions written."""
        report = self._site.takeover("--back")
        outcomes = {one["outcome"] for one in report["partitions"]}
        assert outcomes == {"handed-back"}, report
        self._begins = self._site.target_ends()

    def go_on(self) -> None:
        """Have MirrorMaker 2 go on behind a flow that was handed back: it copies what is new, and nothing twice."""
        site = self._site
        with site.mirrormaker():
            with Traffic(site):
                site.await_copied(site.logs, RECORDS)
            site.await_caught_up()
        assert self._check("MirrorMaker 2 after the hand back") == self._doubled

    def _check(self, by: str) -> int:
        """Compare the clusters; return how many records MirrorMaker 2 has doubled itself, and check all else."""
        site = self._site
        found = site.compared(self._own)
        wrong = [f"{log}, {by}: {line}" for log, one in found.items() for line in self._wrong(log, one)]
        if not site.last_values():
            wrong.append(f"{site.compact}, {by}: the last value of a key is another one")
        assert not wrong, "; ".join(wrong)
        return sum(one.doubled_by_mirrormaker for one in found.values())

    def _wrong(self, log: Log, one: Comparison) -> list[str]:
        # By default MirrorMaker 2 copies aborted transactions, too, which the source's readers do not see.
        copies_aborted = not self._site.exactly_once and log.topic == self._site.transactions
        checks = {
            f"{one.missing.total()} records are missing": not one.missing,
            f"{one.doubled} records are doubled": not one.doubled,
            f"{one.foreign.total()} records are not the source's": copies_aborted or not one.foreign,
            "the order is another one": one.in_order,
        }
        return [line for line, holds in checks.items() if not holds]


def _interrupt(site: MirrorMakerSite, kills: Sequence[Kill]) -> None:
    if not kills:
        with site.mirrormaker():
            site.await_copied(site.logs, RECORDS)
    for one in kills:
        with site.mirrormaker() as process:
            if one.moment is Moment.STARTED:
                site.await_started()
            else:
                site.await_copied(site.logs, 1 if one.moment is Moment.COPIED else RECORDS)
            if one.moment is Moment.STORED:
                eventually(lambda: site.stored() >= len(site.logs), what="stored positions", every_s=0.2)
            time.sleep(one.after_s)  # the moment itself, not a condition
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
