"""Takes the ranges that are added to the epoch of a task while it copies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mirror.client import Admin, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.progress.control import RunControl, control_partition
from mirror.relay.task.added_ranges import Selection, added_ranges
from mirror.relay.task.topic_rules import TopicRules

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Addition:
    """Ranges to copy from now on, and the rules of their target topics."""

    ranges: Sequence[Range]
    rules: TopicRules


LoadAdditions = Callable[[Collection[TopicPartition]], Addition]
"""Reads what was added to the task, without the target partitions that it has. It waits for the clusters."""


def load_additions(
    target: Admin,
    flow: str,
    policy: CopyPolicy,
    read_rules: Callable[[Sequence[Range]], TopicRules],
    read_selection: Callable[[], Selection],
    known: Collection[TopicPartition],
) -> Addition:
    """Read the additions of the task of ``policy`` without the ``known`` target partitions.

    ``read_selection`` returns the topics that the configuration selects now. Raises MirrorError.
    """
    offsets = target.group_offsets(control_partition(flow)[0])
    added = added_ranges(offsets, flow, policy.run, policy.epoch, policy.task, read_selection(), _report_left_out)
    new = [copied for copied in added if TopicPartition(copied.target_topic, copied.partition) not in known]
    return Addition(new, read_rules(new) if new else TopicRules({}, {}))


def _report_left_out(added: Range) -> None:
    _log.warning(
        "new partition %d of topic %s is not copied into %s before the next epoch: the configuration on this host does"
        " not select it; if its file is older than the driver's, bring it up to date",
        added.partition,
        added.topic,
        added.target_topic,
    )


class Additions:
    """The additions of one task, for its thread.

    A read that fails is repeated with the next control record, without backoff: that is read each second anyway.
    """

    def __init__(
        self, policy: CopyPolicy, load: LoadAdditions, submit: Callable[..., Future[Any]], wake: Callable[[], None]
    ) -> None:
        """``submit`` runs a call in a thread that may wait."""
        self._policy: Final = policy
        self._load: Final = load
        self._submit: Final = submit
        self._wake: Final = wake
        self._seen = 0
        """:attr:`RunControl.added` as of the last read that succeeded."""
        self._control: Future[RunControl | None] | None = None
        self._reading: tuple[int, Future[Addition]] | None = None
        self._reported = ""

    def follow(self, control: Future[RunControl | None]) -> None:
        """Compare the control record that is being read with what is known."""
        self._control = control

    def take(self, known: Callable[[], Iterable[TopicPartition]]) -> Addition | None:
        """Return ranges that were added, once; ``known`` returns the target partitions that the task copies."""
        if self._reading is not None:
            return self._take_read(*self._reading)
        if self._control is None or not self._control.done():
            return None
        control, self._control = self._control, None
        added = self._count(control)
        if added > self._seen:
            reading = self._submit(partial(self._load, frozenset(known())))
            self._reading = added, reading
            reading.add_done_callback(lambda _: self._wake())
        return None

    def _take_read(self, added: int, reading: Future[Addition]) -> Addition | None:
        if not reading.done():
            return None
        self._reading = None
        if (error := reading.exception()) is not None:
            if self._reported != str(error):  # it is read each second
                _log.warning("new partitions of epoch %d cannot be read; retrying: %s", self._policy.epoch, error)
            self._reported = str(error)
            return None
        self._seen = added
        addition = reading.result()
        return addition if addition.ranges else None

    def _count(self, control: Future[RunControl | None]) -> int:
        record = None if control.exception() is not None else control.result()
        return record.added if record is not None and record.run == self._policy.run else 0
