"""Faults of the stream's own processes and of their clocks."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import ClassVar, Final

import psutil

from tests.campaign.chaos.injection import Injection
from tests.campaign.chaos.wall_clock import WallClock
from tests.polling import eventually

_CLOCKS_S: Final = (3_600, -3_600, 600, -600, 60, -60, 5, -5)
_ENDS_WITHIN_S: Final = 10.0


class _OfProcesses(Injection):
    """A fault of an executor, or of a Python worker, with everything that it has started."""

    def executor(self) -> psutil.Process | None:
        """Return an executor; None where the driver has just been killed."""
        return self._some(self.context.stream.executors.executors())

    def worker(self) -> psutil.Process | None:
        """Return the Python worker with the most connections."""
        workers = self.context.stream.copying()
        return max(workers, key=lambda worker: (_connections(worker), worker.pid), default=None)

    def _some(self, processes: list[psutil.Process]) -> psutil.Process | None:
        return self.rng.choice(sorted(processes, key=lambda process: int(process.pid))) if processes else None


class _Killed(_OfProcesses):
    def kill(self, name: str, process: psutil.Process | None) -> None:
        if process is None:
            self.log(f"there was no {name}")
            return
        self.log(f"killed {name} {process.pid}")
        with contextlib.suppress(psutil.NoSuchProcess):  # It has ended by itself just now.
            process.send_signal(signal.SIGKILL)
            eventually(lambda: not alive(process), within_s=_ENDS_WITHIN_S, what=f"the end of {process.pid}")
            self.count = 1


class ExecutorKilled(_Killed):
    """SIGKILL to the JVM of an executor."""

    unit: ClassVar = "executors killed"

    def begin(self) -> None:
        self.kill("executor", self.executor())


class WorkerKilled(_Killed):
    """SIGKILL to the Python worker with the most connections."""

    unit: ClassVar = "Python workers killed"

    def begin(self) -> None:
        self.kill("Python worker", self.worker())


class _Stopped(_OfProcesses):
    """SIGSTOP, and SIGCONT at the end. Processes count that were stopped until then."""

    unit: ClassVar = "processes stopped and continued"

    def stop(self, process: psutil.Process | None) -> None:
        self._stopped = list(_with_descendants(process)) if process is not None else []
        if not self._stopped:
            self.log("there was no such process")
        for each_process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                each_process.suspend()

    def end(self) -> None:
        for process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.count += process.status() == psutil.STATUS_STOPPED
                process.resume()
        self.log(f"of {len(self._stopped)}, {self.effect}")


class ExecutorStopped(_Stopped):
    """An executor's JVM, its Python daemon and its workers are stopped."""

    def begin(self) -> None:
        self.stop(self.executor())


class WorkerStopped(_Stopped):
    """The Python worker with the most connections is stopped."""

    def begin(self) -> None:
        self.stop(self.worker())


class DriverKilled(Injection):
    """`mirror stream`, or all processes of the driver, are killed and started again."""

    unit: ClassVar = "processes of the driver killed"

    def begin(self) -> None:
        alone = self.rng.random() < 0.5
        stream = self.context.stream
        before = stream.site.processes()
        self.log(f"killed {'mirror stream alone' if alone else 'all of the driver'}")
        stream.kill(alone=alone)
        self.count = sum(not alive(process) for process in before)
        stream.start()


class ClockStepped(Injection):
    """The clocks of the driver, of the workers, or of both are set to other times."""

    unit: ClassVar = "processes whose clock was stepped"
    steps: ClassVar = 3

    def begin(self) -> None:
        self.step(0)

    def step(self, number: int) -> None:
        # Each step is random by itself: a step that comes late does not change the others.
        del number
        both = self.context.stream.clocks
        clocks, seconds = self.rng.choice([both, both[:1], both[1:]]), self.rng.choice(_CLOCKS_S)
        self._set(clocks, seconds)
        for clock in clocks:
            measured = clock.measured()
            self.log(f"a clock is at {measured:+.1f} s")
            if abs(measured - seconds) < 1:
                self.count += len(clock.users([process for _, process in self.context.stream.roles()]))

    def end(self) -> None:
        self._set(self.context.stream.clocks, 0)

    def _set(self, clocks: tuple[WallClock, ...], seconds: int) -> None:
        names = [
            name
            for name, clock in zip(("driver", "workers"), self.context.stream.clocks, strict=True)
            if clock in clocks
        ]
        self.log(f"clock of {' and '.join(names)} at {seconds:+d} s")
        for clock in clocks:
            clock.step(seconds)


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _connections(process: psutil.Process) -> int:
    try:
        return len(process.net_connections(kind="tcp"))
    except psutil.Error:
        return 0


def _with_descendants(process: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield process
        yield from process.children(recursive=True)
