"""Which clients have arrived on the target of a switch that is open."""

from __future__ import annotations

from dataclasses import replace

from mirror.errors import KafkaTimeout
from mirror.switch.arrivals import Arrivals, FirstRecord
from mirror.switch.command import watch_clients
from tests.switch.test_machine import OPEN

RECORD = replace(OPEN, target_ends={"t": (7, 3), "u": (0,)}, groups={"g": "at 3"})
"""It opened at 110,000 ms."""


def test_the_first_record_behind_the_ends_of_the_switch_is_that_of_a_client() -> None:
    arrivals = Arrivals(RECORD)
    assert [*arrivals.see({"t": (7, 3), "u": (0,)}, ["other"], 111_000)] == []
    assert [*arrivals.see({"t": (7, 5), "u": (0,)}, [], 112_000)] == [
        "topic t: first record in partition 1 at offset 3, seen 2 s after the switch opened"
    ]
    assert [*arrivals.see({"t": (9, 9), "u": (0, 1)}, ["g"], 113_000)] == [
        "topic u: first record in partition 1 at offset 0, seen 3 s after the switch opened",
        "group g: first member, seen 3 s after the switch opened",
    ]
    assert arrivals.arrived.topics == {"t": FirstRecord(1, 3, 112_000), "u": FirstRecord(1, 0, 113_000)}
    assert arrivals.arrived.is_complete


class Readings:
    """Readings of the target, one for each second, of which the last one stays; None: it does not answer."""

    def __init__(self, *readings: tuple[dict[str, tuple[int, ...]], set[str]] | None) -> None:
        self.readings, self.now_ms = readings, 110_000

    def read(self) -> tuple[dict[str, tuple[int, ...]], set[str]]:
        number = min((self.now_ms - 110_000) // 1000, len(self.readings) - 1)
        if (found := self.readings[number]) is None:
            msg = "no answer"
            raise KafkaTimeout(msg)
        return found

    def pause(self, seconds: float) -> None:
        self.now_ms += round(1000 * seconds)

    def watched(self, seconds: float) -> list[str]:
        lines = list[str]()
        watch_clients(self.read, RECORD, seconds, lines.append, now_ms=lambda: self.now_ms, pause=self.pause)
        return lines


def test_a_watch_ends_when_all_have_arrived_or_its_time_has_passed() -> None:
    all_of_them = ({"t": (8, 3), "u": (1,)}, {"g"})
    early = Readings(None, all_of_them)
    lines = early.watched(60)
    assert lines[0] == "which clients have arrived cannot be read: no answer"
    assert lines[-1] == "clients write to 2 of 2 topics of the target, and 1 of 1 groups have members there"
    assert early.now_ms == 111_000
    late = Readings(({"t": (8, 3)}, set()))
    assert late.watched(5)[-1] == (
        "clients write to 1 of 2 topics of the target, and 0 of 1 groups have members there; not yet: topic u, group g"
    )
    assert late.now_ms == 115_000
    assert len(Readings(all_of_them).watched(0)) == 4
