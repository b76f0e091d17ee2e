"""Starts attempts in their own processes, follows their progress, and stops or kills them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from types import TracebackType
from typing import Any, Final, Self

from mirror.relay.model.ranges import RangeResult
from tests.campaign.kills import attempt as attempt_module
from tests.campaign.kills.attempt import FAILED, RESULTS, AttemptOrder, attempt
from tests.campaign.kills.points import HELD

WITHIN_S: Final = 90.0
# Processes are forked from one that has imported everything: imports take longer than a small copy.
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([attempt_module.__name__])


class AttemptProcess:
    """One attempt. A context manager, which kills the process at its end."""

    def __init__(self, order: AttemptOrder) -> None:
        self._line, theirs = _PROCESSES.Pipe()
        self._process: Final = _PROCESSES.Process(target=attempt, args=(order, theirs))
        self._process.start()
        theirs.close()
        self._passed: Final = list[Any]()
        self._ended = False
        self._results: list[RangeResult] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._line.close()

    def await_point(self, point: str, count: int = 1) -> bool:
        """Wait until the attempt has passed ``point``; False where it ended before."""
        return self._await((point, count))

    def await_held(self) -> bool:
        """Wait until the attempt is held at its point; False where it ended before."""
        return self._await((HELD, None))

    def await_end(self) -> list[RangeResult]:
        """Wait for the end of the attempt and return its results."""
        self._await(None)
        assert self._results is not None, f"an attempt ended without results after {self._passed[-3:]}"
        return self._results

    def resume(self) -> None:
        """Continue the attempt from the point where it is held."""
        with contextlib.suppress(BrokenPipeError):  # The attempt has ended; await_end() reports why.
            self._line.send("go on")

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def proceed(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signum: signal.Signals) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signum)

    def kill(self) -> None:
        """SIGKILL the process and wait for its end."""
        self._process.kill()
        self._process.join()

    def _await(self, wanted: tuple[str, int | None] | None) -> bool:
        """Wait until the attempt has reported ``wanted`` or ended."""
        until = time.monotonic() + WITHIN_S
        while wanted not in self._passed and not self._ended:
            if not self._line.poll(max(0, until - time.monotonic())):
                msg = f"an attempt did not come to {wanted or 'its end'} within {WITHIN_S} s: {self._passed[-3:]}"
                raise AssertionError(msg)
            self._receive()
        return wanted in self._passed

    def _receive(self) -> None:
        try:
            what, about = self._line.recv()
        except (EOFError, ConnectionResetError):
            self._ended = True
            return
        if what == FAILED:
            raise AssertionError(about)
        if what == RESULTS:
            self._results, self._ended = about, True
        else:
            self._passed.append((what, about))
