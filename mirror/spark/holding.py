"""Holds a flow, so that nothing of it writes any more, and releases it.

::

    hold ──► latch, stored ──► rounds, fenced ──► the run's control record: stop ──► wait for its end
    release ──► wait for the end ──► latch, stored ──► streams that hold the flow begin it again

What began before the latch was stored is fenced or stopped by what follows; what begins later reads the latch
after its own fence or claim (:mod:`mirror.relay.progress.latch`), and ends.
"""

from __future__ import annotations

import getpass
import math
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import FlowError, LatchMoved
from mirror.observation import Side
from mirror.relay.progress.control_record import DEAD_AFTER_MS, POLL_INTERVAL_MS, RunControl
from mirror.relay.progress.fenced_writer import FencedWriter, aside_transactional_id, groups_transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.relay.progress.latch import READ_MS, Latch, Role, read_latch, set_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight import flow_topics
from mirror.spark.run_control import RunControlClient
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

SETTLED_MS: Final = 12_000
"""More than the 10 s within which a round sends what it has stored, and in which a live run gives a sign of life."""
_CLOCKS_MS: Final = 5 * 60 * 1000
"""The clocks of two hosts differ by less; Kerberos requires the same."""
_GRACE_MS: Final = 10_000
"""The time that Spark may take to end after a flow's shutdown-timeout-ms."""
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOutcome:
    """The latch, and what may still write although it is held."""

    latch: Latch
    running: str = ""
    """One line about what may still write; empty if nothing of the flow does."""


def user() -> str:
    """Return the user and the host of this process, as a latch names them."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # such as a container's user without a name
        name = "an unknown user"
    return f"{name} on {socket.gethostname()}"


def still_writes(
    control: RunControl | None, *, is_dead: bool, fenced_ms: int, unix_ms: int, settled_ms: int = SETTLED_MS
) -> str:
    """Return what may still write at ``unix_ms`` although the latch and the fences were set at ``fenced_ms``. Pure.

    ``fenced_ms`` is later if a run has been seen since that had not ended. Empty: nothing does. ``control`` is the
    control record, ``is_dead`` whether its run has died: its tasks end within a minute of its last sign of life, and
    those of a run that lives end before it says that it has ended. Within ``settled_ms`` what was stored before is
    sent, the tasks end of a run that another one has replaced just before, and a run that prepares claims the flow,
    which it cannot while another one has it.
    """
    if control is not None and not control.ended and not is_dead:
        silent_s = (control.silent_ms(unix_ms) or 0) // 1000
        seen = f"its last sign of life was {silent_s} s ago"
        return f"run {control.run} on {control.host} has not said that it ended ({seen})"
    if unix_ms - fenced_ms < settled_ms:
        return f"what was stored before the latch, or the end of the last run, may be sent for {settled_ms // 1000} s"
    return ""


# Invariant: Once hold has returned and named nothing that may still write, nothing of the flow writes, and nothing that
#   begins later does, until it is released.
# Test: tests/spark/test_holding_model.py::test_no_task_writes_after_hold_has_returned
# Test: tests/spark/test_holding.py::test_hold_waits_for_the_end_of_the_run
# Test: tests/spark/test_holding.py::test_hold_stops_a_run_whose_claim_replaces_the_command
# Test: tests/spark/test_holding.py::test_hold_stops_a_copy_from_the_aside_topic_between_two_records
def hold(
    config: MirrorConfig,
    flow: FlowConfig,
    *,
    why: str,
    by: str,
    expected: int | None = None,
    takes_over: bool = False,
    wait: bool = True,
    until_s: float = math.inf,
    call_ms: int = READ_MS,
    pause: Callable[[float], object] = time.sleep,
    unix_ms: Callable[[], int] | None = None,
) -> HoldOutcome:
    """Hold ``flow``, stop what runs of it, and wait for its end; it may be repeated.

    ``expected`` is the generation of the latch that the caller has read; None: any. ``takes_over``: also from others
    that hold it. ``until_s`` (monotonic seconds) bounds the wait, beside the times that a run has for its end. The
    latch is stored within twice ``call_ms``. Raises LatchMoved for another generation; FlowError, KafkaError: then the
    flow may be held, or not.
    """
    now_ms, timer = unix_ms or SystemClock().unix_ms, Timer(SystemClock(), call_ms)
    options = config.clusters[flow.target].client_options()
    with Admin(options) as target:
        _prepare(flow, target)
        latch = set_latch(
            options,
            flow.name,
            Role.HELD,
            reason=why,
            by=by,
            now_ms=now_ms(),
            expected=expected,
            takes_over=takes_over,
            timer=timer,
        )
        if flow.groups.sync:
            _fence(options, group_topic_of(flow.name), groups_transactional_id(flow.name))
        if flow.aside:
            _fence(options, flow.aside, aside_transactional_id(flow.name))
        fenced_ms = now_ms()
        client = RunControlClient(target, flow.name)
        running = _end(client, flow, fenced_ms, now_ms, pause, until_s if wait else -math.inf)
    return HoldOutcome(latch=latch, running=running)


def release(
    config: MirrorConfig,
    flow: FlowConfig,
    *,
    by: str,
    expected: int | None = None,
    until_s: float = math.inf,
    pause: Callable[[float], object] = time.sleep,
    unix_ms: Callable[[], int] | None = None,
) -> Latch:
    """Let ``flow`` copy again, once what ran before the latch has ended; streams that hold it begin it again.

    ``expected`` is the generation of the latch that the caller has read; None: any. Raises LatchMoved for another one,
    FlowError if a run has not ended, KafkaError.
    """
    now_ms = unix_ms or SystemClock().unix_ms
    options = config.clusters[flow.target].client_options()
    found = read_latch(options, flow.name)
    if expected is not None and found.generation != expected:
        raise LatchMoved(f"flow {flow.name} is {found.line()} (generation {found.generation}, not {expected})")
    latch = found
    with Admin(options) as target:
        client = RunControlClient(target, flow.name)
        if found.is_held:
            held_ms = min(now_ms(), found.since_ms + _CLOCKS_MS)  # at the latest: another host has written since_ms
            if running := _end(client, flow, held_ms, now_ms, pause, until_s):
                raise FlowError(f"flow {flow.name} is not released: {running}; repeat the command once that has ended")
            latch = set_latch(
                options, flow.name, Role.ACTIVE, reason="", by=by, now_ms=now_ms(), expected=found.generation
            )
        if latch.generation:
            client.resume()  # also of an active latch: a release that was killed has stored only that
    return latch


def _prepare(flow: FlowConfig, target: Admin) -> None:
    """Create the topic of the latch, if it is missing. Raises FlowError, KafkaError."""
    topic = flow_topics.latch_of(flow)
    _, warnings = flow_topics.prepare([topic], Side(flow.target, target))
    if topic.name not in target.describe_topics([topic.name]):
        raise FlowError(f"flow {flow.name} is not held: {'; '.join(warnings) or f'topic {topic.name} is missing'}")


def _fence(options: Mapping[str, object], topic: str, transactional_id: str) -> None:
    """Have rounds of groups, or copies from the aside topic, that have begun store and commit nothing more."""
    writer = FencedWriter(FlowTopic(options, topic), transactional_id, READ_MS)
    try:
        writer.begin()
    finally:
        writer.close()


class Ending:
    """Ends each run that has the flow."""

    def __init__(self, client: RunControlClient, fenced_ms: int, wind_up_ms: int) -> None:
        """``wind_up_ms``: within which a task ends that is to stop."""
        self.settled_ms: Final = max(SETTLED_MS, 2 * POLL_INTERVAL_MS + wind_up_ms)
        self._client: Final = client
        self._fenced_ms = fenced_ms
        """When the latch and the fences were set, or a run that had not ended was seen last."""
        self._halted = ""
        """The run that was stopped last."""
        self._seen: tuple[str, int] | None = None
        self._seen_at_ms = 0
        """When its sign of life changed last, by the clock of this host."""

    def step(self, unix_ms: int) -> str:
        """Stop the run of the control record, and return what may still write. Raises KafkaError."""
        control = self._client.read()
        is_dead = control is not None and self._is_dead(control, unix_ms)
        if control is not None and not control.ended and (is_dead or not control.stop or control.run != self._halted):
            # A run that has not read the latch yet may claim the flow, or overwrite the command.
            self._client.halt(control, ended=is_dead)
            self._halted = control.run
        if control is not None and not control.ended:
            self._fenced_ms = unix_ms
        return still_writes(
            control, is_dead=is_dead, fenced_ms=self._fenced_ms, unix_ms=unix_ms, settled_ms=self.settled_ms
        )

    def _is_dead(self, control: RunControl, unix_ms: int) -> bool:
        """Whether the run has died, and its tasks have had time to obey.

        Of a run whose clock is behind, the sign of life is old, but it changes.
        """
        if (seen := (control.run, control.seen_ms)) != self._seen:
            self._seen, self._seen_at_ms = seen, unix_ms
        return control.is_dead(unix_ms) and unix_ms - self._seen_at_ms >= self.settled_ms


def _end(
    client: RunControlClient,
    flow: FlowConfig,
    fenced_ms: int,
    now_ms: Callable[[], int],
    pause: Callable[[float], object],
    until_s: float,
) -> str:
    """Stop each run that has the flow, and wait until nothing of it writes; return what still may."""
    ending = Ending(client, fenced_ms, flow.copy_policy().wind_up_ms)
    give_up_ms = now_ms() + DEAD_AFTER_MS + flow.shutdown_timeout_ms + 2 * ending.settled_ms + _GRACE_MS
    while (running := ending.step(now_ms())) and now_ms() < give_up_ms and time.monotonic() < until_s:
        pause(_POLL_S)
    return running
