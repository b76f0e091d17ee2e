"""A site whose streams run nothing: a test says what becomes of each, and sees what the supervisor asks of it."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import cast

from mirror.config.load import load
from mirror.spark.supervision.config_file import ConfigFile, LoadedFlow
from mirror.spark.supervision.flow_states import Began, Event, FlowState, JobEnded, Lost, Refused, Supervised
from mirror.spark.supervision.start import SupervisedStream
from mirror.spark.supervision.supervisor import Supervisor
from tests.polling import eventually

CLUSTERS = """
[clusters.a]
"bootstrap.servers" = "a:1"
[clusters.b]
"bootstrap.servers" = "b:1"
"""


def flow(name: str, *lines: str) -> str:
    """The TOML of a flow."""
    return "\n".join([f"[flows.{name}]", 'source = "a"', 'target = "b"', f'topics = ["{name}"]', *lines, ""])


class StandInStream:
    """Runs until the test ends it, or it is asked to end."""

    def __init__(self, settings: LoadedFlow, *, obeys: bool = True) -> None:
        self.settings = settings
        self.asked: list[str] = []
        self.has_begun = False
        self._obeys = obeys
        self._end: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()

    def run(self, announce: Callable[[Event], None]) -> Event:
        self.has_begun = True
        announce(Began())
        result = self._end.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self) -> None:
        self.asked.append("stop")
        if self._obeys:
            self.end(JobEnded("in order"))

    def cancel(self) -> None:
        self.asked.append("cancel")
        if self._obeys:
            self.end(JobEnded("cut short"))

    def end(self, result: Event | BaseException) -> None:
        self._end.put(result)


class StandInFlow:
    """What one flow is supervised with."""

    def __init__(self, site: StandInSite, name: str, post: Callable[[Event], None]) -> None:
        self.name = name
        self.post = post
        """Posts what the flow's control finds."""
        self.used: list[StandInStream] = []
        self.settings: LoadedFlow | None = None
        """Those of the last change."""
        self._site = site

    def open(self, settings: LoadedFlow) -> StandInStream:
        site = self._site
        site.begun_openings.put(self.name)
        assert site.opening.wait(30)
        if (error := site.refusals.get(self.name)) is not None:
            raise error
        site.streams[self.name].append(stream := StandInStream(settings, obeys=site.obeys))
        if site.is_over:
            stream.end(JobEnded("cut short"))
        return stream

    def use(self, stream: SupervisedStream) -> None:
        self.used.append(cast("StandInStream", stream))

    def event_of(self, error: BaseException) -> Event:
        text = f"{self.name}: {error}"
        return Refused(text, 60_000) if isinstance(error, ValueError) else Lost(text)

    def leave(self) -> None:
        self._site.left.append(self.name)

    def gives_up(self, now: Supervised) -> bool:
        del now
        return self._site.gives_up_all

    def on_change(self, settings: LoadedFlow | None, before: Supervised, now: Supervised) -> None:
        self.settings = settings
        if before.state is not now.state:
            self._site.changes.append((self.name, now.state))

    def on_edit(self, keys: list[str]) -> None:
        self._site.edits.append((self.name, keys))

    def on_removal(self) -> None:
        self._site.removed.append(self.name)


class StandInSite:
    """A supervisor of flows of a file in ``folder``; time stands still unless a test lets it pass."""

    def __init__(self, folder: Path, *flows: str) -> None:
        self.config = folder / "mirror.toml"
        self.write(*flows)
        self.unix_ms = 1_000_000
        self.now_s = 0.0
        self.signals = 0
        self.flows: dict[str, StandInFlow] = {}
        self.streams: dict[str, list[StandInStream]] = defaultdict(list)
        self.refusals: dict[str, BaseException] = {}
        """What the opening of a stream raises."""
        self.opening = threading.Event()
        """Set: streams are opened without delay."""
        self.opening.set()
        self.begun_openings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.obeys = True
        self.gives_up_all = self.is_over = False
        self.changes: list[tuple[str, FlowState]] = []
        self.edits: list[tuple[str, list[str]]] = []
        self.removed: list[str] = []
        self.wrong: list[str] = []
        """What was wrong with the file after each edit, "" if nothing was."""
        self.left: list[str] = []
        self.supervisor = Supervisor(
            self,
            load(self.config),
            ConfigFile(self.config, None),
            unix_ms=lambda: self.unix_ms,
            now_s=lambda: self.now_s,
        )

    def write(self, *flows: str) -> None:
        self.config.write_text(CLUSTERS + "".join(flows))

    # --- what the supervisor calls

    def add(self, flow: str, post: Callable[[Event], None]) -> StandInFlow:
        self.flows[flow] = StandInFlow(self, flow, post)
        return self.flows[flow]

    def on_file(self, error: str) -> None:
        self.wrong.append(error)

    def tick(self) -> int:
        return self.signals

    # --- what tests do

    def close(self) -> None:
        """End the threads of all streams, also of those that are being opened."""
        self.is_over = True
        self.opening.set()
        for stream in [one for streams in list(self.streams.values()) for one in list(streams)]:
            stream.end(JobEnded("cut short"))

    def state(self, name: str) -> Supervised:
        return self.supervisor.states[name]

    def await_that(self, condition: Callable[[], object], what: str = "the condition") -> None:
        def holds() -> object:
            self.supervisor.step()
            return condition()

        eventually(holds, what=what, every_s=0)

    def await_state(self, name: str, state: FlowState) -> Supervised:
        self.await_that(lambda: self.state(name).state is state, f"{name} is {state}")
        return self.state(name)

    def read_file(self) -> None:
        """Have the supervisor read the file twice, one second apart."""
        for _ in range(3):
            self.now_s += 1.0
            self.supervisor.step()
