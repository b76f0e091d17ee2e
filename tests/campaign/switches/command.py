"""`mirror cutover` in a process of its own: its lines as they come, its exit status, and its end by SIGKILL."""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.campaign.both_ways.stream import CHECKOUT
from tests.e2e.site import Site

ASKS: Final = "with members on the source: stop its consumers"
_ENDS_WITHIN_S: Final = 60.0
_LINE: Final = re.compile(r"mirror: switch (?P<name>\S+): (?P<text>.*)")


class OperatorProcess:
    """One run of the command. Its lines come by :meth:`line`."""

    def __init__(self, site: Site, program: Sequence[str], name: str, proofs: Path, log: Path, *more: str) -> None:
        """``program`` are the words before ``cutover``; ``log`` gets all lines, of all runs."""
        own = ["cutover", name, "--config", str(site.config), "--folder", str(proofs), "--json", *more]
        self._process: Final = site.launch([sys.executable, *program, *own], environ={"PYTHONPATH": str(CHECKOUT)})
        self._lines: Final = queue.SimpleQueue[str | None]()
        self._output: Final[list[str]] = []
        self._threads: Final = [
            threading.Thread(target=self._read_lines, args=(log,), daemon=True),
            threading.Thread(target=self._read_output, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_lines(self, log: Path) -> None:
        assert self._process.stderr is not None
        with log.open("a", encoding="utf-8") as file:
            for line in self._process.stderr:
                file.write(line)
                file.flush()
                if found := _LINE.fullmatch(line.rstrip()):
                    self._lines.put(found["text"])
        self._lines.put(None)

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        self._output.append(self._process.stdout.read())

    def line(self, within_s: float) -> str | None:
        """Return the next line about the switch; an empty one if none came in time, None at the end."""
        try:
            return self._lines.get(timeout=max(0.0, within_s))
        except queue.Empty:
            return ""

    def kill(self, site: Site, *, with_children: bool) -> bool:
        """SIGKILL it, and the commands that it runs; return whether it still ran."""
        ran = self._process.poll() is None
        if with_children:
            site.kill()
        else:
            self._process.kill()
        return ran

    def end(self) -> int:
        """Return its exit status."""
        return self._process.wait(_ENDS_WITHIN_S)

    def record(self) -> dict[str, Any]:
        """Return what it has printed: the switch's record; nothing if it has printed none."""
        for thread in self._threads:
            thread.join(_ENDS_WITHIN_S)
        text = "".join(self._output)
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found
