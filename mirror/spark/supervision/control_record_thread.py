"""The thread that follows the control record of one flow, for as long as a process runs or holds the flow.

::

    mirror stop, --resume, other runs ──► control record ◄──sign of life, job, version── ControlRecordThread ◄── claims
                                                └──────────Held, OtherRunClaimed, Resumed─────────► who runs the flow
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.client import Admin
from mirror.closing import Closing
from mirror.errors import KafkaError, MirrorError
from mirror.observation import Side
from mirror.relay.progress.control_record import POLL_INTERVAL_MS
from mirror.relay.progress.latch import read_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import is_away
from mirror.spark.preflight import flow_topics
from mirror.spark.run_control import RunControlClient, claimed_message, new_run_id
from mirror.spark.supervision.flow_states import Held, OtherRunClaimed, Resumed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.models import FlowConfig
    from mirror.relay.progress.control_record import Attempts, RunControl

    Post = Callable[[Held | OtherRunClaimed | Resumed], object]

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)

_LEAVE_S: Final = 2.0
"""A run that ends was usually asked to by a signal, and has little time left for all of its end."""


class ClaimedRun:
    """A run that has claimed its flow, and what it wants its control record to say. Thread-safe.

    There is one object for each start of a flow: once a later run has claimed it, this one changes nothing.
    """

    def __init__(
        self, control: ControlRecordThread, client: RunControlClient, then: Callable[[ClaimedRun], object]
    ) -> None:
        self._control: Final = control
        self.client: Final = client
        self.then: Final = then
        self._job = 0
        self.fenced_by: RunControl | None = None
        """The record of another run that has taken over."""

    @property
    def run(self) -> str:
        """The run's identifier."""
        return self.client.run

    @property
    def generation(self) -> int:
        """The generation of its claim."""
        return self.client.wanted.generation

    def want(self, *, version: int = 0, attempts: Attempts = ()) -> None:
        """Want this in the record, too, with the next renewal; numbers never decrease."""
        self.client.want(version=version, attempts=attempts)

    def begin_job(self, number: int) -> None:
        """Have the tasks of earlier jobs end in order."""
        self._job = number
        self.client.want(job=number)

    def announce_assignments(self, version: int) -> None:
        """Have the running tasks read the assignments up to ``version``.

        Raises KafkaError. The next renewal repeats it, if that fails.
        """
        self.want(version=version)
        self.sync()

    def end_job(self) -> None:
        """Have the tasks of the job end in order; the flow stays claimed. Does not wait for the target."""
        if self.client.wanted.job <= self._job:  # each renewal may have it called again, which requests another one
            self.client.want(job=self._job + 1)
            self._control.request()

    def sync(self) -> None:
        """Write what is wanted, and have posted what other processes have written. Raises KafkaError."""
        self._control.request().result()


# Invariant: One thread of a run writes its control record, because an OffsetCommit compares nothing: of two writers the
#   later one would undo what the other has written.
# Test: tests/spark/supervision/test_control_record_thread.py::test_a_run_of_an_earlier_start_changes_nothing_any_more
# Test: tests/spark/supervision/test_control_record_thread.py::test_the_end_of_a_job_is_no_stop_of_the_flow
# Test: tests/spark/driver/
#   test_stream_control.py::test_a_run_whose_target_is_edited_is_controlled_until_its_tasks_have_ended
class ControlRecordThread(Closing):
    """Renews the record of the flow's last claim each 10 s, and follows it each second. All methods are thread-safe.

    ``post`` is called in the thread with what the record says each time: Held if ``mirror stop`` has asked the run to
    end, OtherRunClaimed if another run has claimed the flow, and Resumed if nothing keeps the flow from running. An
    event that comes late is corrected by the next one.

    The thread is a daemon: nothing waits for a target that does not answer, but for the methods that say so.
    """

    def __init__(
        self,
        flow: FlowConfig,
        options: Mapping[str, object],
        post: Post,
        warn: Callable[[str], object],
        *,
        took_back: Callable[[], object] = bool,
        every_ms: int | None = None,
        unix_ms: Callable[[], int] | None = None,
    ) -> None:
        """``options`` are those of the target. ``warn`` gets a line about a takeover, and about an error, each once.

        ``took_back`` is called in the thread if another run had the flow meanwhile: it has reported its own state.
        """
        self.options: Final = options
        self._flow: Final = flow
        self._post: Final = post
        self._warn: Final = warn
        self._took_back: Final = took_back
        self._every_s: Final = (every_ms or POLL_INTERVAL_MS) / 1000
        self._unix_ms: Final = unix_ms or SystemClock().unix_ms
        self._requests: Final[queue.SimpleQueue[Callable[[], None] | None]] = queue.SimpleQueue()
        self._entry: Final = threading.RLock()
        self._posting: Final = threading.RLock()
        """Held while an event is posted; before :attr:`_entry`, if both are."""
        self._renewal: Future[None] | None = None
        """The renewal that was requested and has not begun."""
        self._is_closed = False
        self._run: ClaimedRun | None = None
        self._own_runs: Final = set[str]()
        """The runs that have claimed the flow, or tried to: a claim may have succeeded although it was not answered."""
        self.run = new_run_id()
        """The run that runs, or the next one."""
        self._waits = self._holds = False
        """Whether :attr:`run` is to claim the flow once it is free, and whether it is to be held then."""
        self._held: Held | None = None
        """What the record says now, if it says that the run is to stop."""
        self._awaits_release = False
        """Whether the latch is to be read once the record says that the flow is held: it may be released by then."""
        self._admin: Admin | None = None
        self._warned = ""
        self._thread: Final = threading.Thread(target=self._repeat, name=f"mirror-control-{flow.name}", daemon=True)
        self._thread.start()

    # --- for other threads

    # Invariant: A flow is known as a run while it waits, prepares or copies, unless another run copies it: its record
    #   is renewed from the claim on, so that mirror stop finds it.
    # Test: tests/spark/supervision/
    #   test_control_record_thread.py::test_a_claimed_flow_is_renewed_from_the_claim_on_whatever_its_start_waits_for
    # Test: tests/spark/supervision/
    #   test_control_record_thread.py::test_a_waiting_flow_is_known_as_a_run_unless_another_one_copies_it
    # Test: tests/spark/driver/test_flow_run.py::test_mirror_stop_ends_a_run_that_prepares
    def claim(self, run: str, then: Callable[[ClaimedRun], object] = bool) -> ClaimedRun:
        """Make ``run`` the one that copies the flow, whatever run has it, and wait for that. Raises KafkaError.

        ``then`` is called in the thread after each renewal, with what this returns.
        """
        return self._submit(lambda: self._claim(run, then)).result()

    def unclaimed(self) -> ClaimedRun:
        """Return a run that has not claimed the flow: it has no name, and its tasks follow no record."""
        return self._submit(self._unclaimed).result()

    def begin(self) -> str:
        """Return the identifier of the run of a start, and take it for :attr:`run`."""
        self.run = new_run_id()
        return self.run

    def wait(self, *, claims: bool) -> None:
        """Have :attr:`run` stand for the flow while nothing of it runs: ``mirror stop`` finds it. Does not wait.

        It replaces an earlier run of this flow here; ``claims``: it claims the flow if there is none, unless another
        run copies it.
        """
        self._submit(lambda: self._wait(claims))

    def hold(self, *, by_latch: bool = False) -> None:
        """Have the record say that the flow is held, as soon as the target answers: ``mirror stop --resume`` finds it.

        If nothing of the flow has run on this target, :attr:`run` claims it first, unless another run copies it.
        ``by_latch``: ``mirror release`` finds it, or what that has done before is found here. Does not wait.
        """
        self._submit(lambda: self._hold(by_latch))

    def request(self) -> Future[None]:
        """Renew the record of the last claim now. Fails with KafkaError.

        While the target does not answer, all requests wait for the same renewal.
        """
        with self._entry:
            if self._renewal is None:
                self._renewal = self._submit(self._renew)
            return self._renewal

    def close(self, timeout_s: float = _LEAVE_S) -> None:
        """Record that its run has ended, end the thread, and wait for that within ``timeout_s``.

        What was requested before is done first.
        """
        self.leave()
        self._thread.join(timeout_s)

    def leave(self) -> None:
        """Close without waiting for it. What posts has returned then, and is not called any more."""
        with self._posting, self._entry:
            if not self._is_closed:
                self._submit(self._end)
                self._is_closed = True
                self._requests.put(None)

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def answer() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised by who waits
                future.set_exception(error)

        with self._entry:
            if self._is_closed:
                future.set_exception(KafkaError("the flow's control has ended"))
            else:
                self._requests.put(answer)
        return future

    # --- the thread

    def _repeat(self) -> None:
        due_s = time.monotonic() + self._every_s
        while True:
            try:
                request = self._requests.get(timeout=max(0.0, due_s - time.monotonic()))
            except queue.Empty:
                self._poll()
                due_s = time.monotonic() + self._every_s
                continue
            if request is None:
                break
            request()
        if self._admin is not None:
            self._admin.close()

    def _poll(self) -> None:
        """Follow the record. A target that does not answer is asked again, without backoff: others count the time."""
        try:
            self._follow()
            if self._run is not None:
                self._run.then(self._run)
            self._warned = ""
        except Exception as error:  # noqa: BLE001 - without this thread other runs would take this one for ended
            line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
            if not is_away(error) and line != self._warned:
                self._warned = line
                self._warn(f"commands to this run cannot be followed: {line}")
                _log.debug("the control record was not renewed", exc_info=error)

    def _renew(self) -> None:
        with self._entry:
            self._renewal = None  # what is wanted from here on may come too late for this one
        self._follow()

    def _follow(self) -> None:
        """Renew the record, and post what other processes have written into it. Raises KafkaError."""
        if self._waits:
            self._claim_if_free()
        if (run := self._run) is None:
            return
        if (other := run.fenced_by) is not None:
            found = run.client.read()
            is_free = found is None or found.ended or found.is_dead(self._unix_ms())
            self._report(Resumed() if is_free else OtherRunClaimed(other.run, other.host))
            return
        decision = run.client.sync()
        if decision.previous is not None:
            self._warn(claimed_message(decision.previous))
        if (other := decision.took_back) is not None:
            self._warn(f"run {other.run}, on {other.host}, had the flow meanwhile and has ended; this run goes on")
        if decision.previous or decision.took_back:
            self._took_back()
        if (other := decision.fenced_by) is not None and not run.client.wanted.ended:
            run.fenced_by = other
            self._report(OtherRunClaimed(other.run, other.host))
        elif decision.fenced_by is None:
            self._held = self._read_held() if decision.stop else None
            self._report(self._held or Resumed())
            self._find_release(run.client)

    def _read_held(self) -> Held:
        """Return why the record says that the run is to stop: by its latch or not, as it was when it first said so."""
        if self._held is not None:
            return self._held
        latch = read_latch(self.options, self._flow.name)
        return Held(latch.held_line(self._flow.name) if latch.is_held else "")

    def _find_release(self, client: RunControlClient) -> None:
        """Have the flow begin again if it was released before the record said that this stream holds it."""
        if self._awaits_release and client.wanted.ended:
            if not read_latch(self.options, self._flow.name).is_held:
                client.resume()
            self._awaits_release = False

    def _report(self, event: Held | OtherRunClaimed | Resumed) -> None:
        with self._posting:
            if not self._is_closed:  # the end that the record has then is no command to the next run, on another target
                self._post(event)

    def _claim(self, run: str, then: Callable[[ClaimedRun], object], *, holds: bool = False) -> ClaimedRun:
        client = RunControlClient(self._target(), self._flow.name, run)
        client.want(ended=holds)
        self._own_runs.add(run)
        previous = client.claim(self._own_runs)
        if previous is not None and previous.run not in self._own_runs:
            self._warn(claimed_message(previous))
        self._waits = False
        self._run = claimed = ClaimedRun(self, client, then)
        return claimed

    def _unclaimed(self) -> ClaimedRun:
        self._waits = False
        return ClaimedRun(self, RunControlClient(self._target(), self._flow.name), bool)

    def _wait(self, claims: bool) -> None:
        self._waits, self._holds = claims or self._run is not None, False

    def _hold(self, by_latch: bool) -> None:
        self._awaits_release = by_latch
        self._waits = self._holds = self._run is None
        if self._run is not None:
            self._run.client.want(ended=True)
        self._follow()

    def _end(self) -> None:
        if self._own_runs:
            RunControlClient(self._target(), self._flow.name).end(self._own_runs)

    def _claim_if_free(self) -> None:
        found = RunControlClient(self._target(), self._flow.name).read()
        if found is None or found.ended or found.run in self._own_runs or found.is_dead(self._unix_ms()):
            # The record is committed for the flow's progress topic, and its state is in the status topic.
            flow_topics.prepare(flow_topics.on_target(self._flow), Side(self._flow.target, self._target()))
            self._claim(self.run, bool, holds=self._holds)

    def _target(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.options)
        return self._admin
