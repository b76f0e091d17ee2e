"""`mirror groups --watch` on a terminal: a pseudo terminal of 24 lines, two real clusters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.copying.group_site import commit, group_sync
from tests.copying.pair import TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(180)]

_LINES: Final = 24
_COLUMNS: Final = 120
_CTRL_C: Final = b"\x03"
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_HOME: Final = "\x1b[H"
"""Each view begins with it."""
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_GROUPS: Final = 40
_CELL: Final = "\N{BOX DRAWINGS LIGHT VERTICAL}"


class Screen:
    """A command on a terminal of its own, and what it draws."""

    def __init__(self, command: list[str]) -> None:
        self._terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color"}
        # In a session of its own, whose terminal this is: Ctrl-C becomes a signal.
        self.process: Final = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=end, stdout=end, stderr=end, env=environ
        )
        os.close(end)
        self._drawn = bytearray()
        self._thread: Final = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # Linux's answer when no process has the other end any more
            while part := os.read(self._terminal, 65536):
                self._drawn += part

    @property
    def drawn(self) -> str:
        return self._drawn.decode(errors="replace")

    def lines(self) -> list[str]:
        """Return the lines of the last view that was drawn as a whole."""
        views = self.drawn.split(_HOME)
        whole = [view for view in views if view.count("\n") >= _LINES - 1]
        return _CONTROL.sub("", whole[-1]).split("\n") if whole else []

    def row(self, group: str) -> list[str]:
        """Return the cells of a group's line; none if it is not on the screen."""
        cells = [[cell.strip() for cell in line.split(_CELL)[1:-1]] for line in self.lines()]
        return next((row for row in cells if row[:1] == [group]), [])

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        os.close(self._terminal)


@pytest.fixture
def watch(pair: TwoClusters, tmp_path: Path) -> Iterator[Callable[[str], Screen]]:
    """``mirror groups --watch`` of a topic."""
    with contextlib.ExitStack() as stack:

        def start(topic: str) -> Screen:
            file = tmp_path / "mirror.toml"
            file.write_text(
                f'[clusters.a]\n"bootstrap.servers" = "{pair.source.address}"\n'
                f'[clusters.b]\n"bootstrap.servers" = "{pair.target.address}"\n'
                f'[flows.{pair.flow}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\nnaming = "identity"\n'
                f'[flows.{pair.flow}.groups]\ninclude = ["g.*"]\n'
            )
            command = [sys.executable, "-m", "mirror.cli", "groups", "--config", str(file), "--flow", pair.flow]
            screen = Screen([*command, "--watch"])
            stack.callback(screen.close)
            return screen

        yield start


def test_the_screen_follows_the_groups_until_ctrl_c(pair: TwoClusters, watch: Callable[[str], Screen]) -> None:
    topic, taken = pair.topics(), "g.taken"
    pair.source.fill(topic, [b"%d" % number for number in range(250)])
    pair.complete(topic)
    at, end = {record.value: offset for offset, record in pair.target.seen(topic)}, pair.target.ends(topic)[1]
    for group in (taken, *(f"g.{number:02}" for number in range(_GROUPS))):
        commit(pair.source, group, topic, 137)
    with group_sync(pair, topic) as sync:
        sync.round()
        commit(pair.target, taken, topic, 140)
        screen = watch(topic)
        eventually(lambda: "taken-over" in screen.row(taken), within_s=60, what="the group that was taken over")
        # What is not in step is shown first, and no view is longer than the screen.
        assert len(screen.lines()) == _LINES
        *numbers, _, state = screen.row("g.00")[3:]
        assert (numbers, state) == (["137", "113", f"{at[b'137']}", f"{end - at[b'137']}"], "in step")
        assert not screen.row(f"g.{_GROUPS - 1}")
        commit(pair.source, "g.00", topic, 200)
        sync.round()
        eventually(lambda: screen.row("g.00")[3:4] == ["200"], what="the next reading")
        assert screen.row("g.00")[5] == f"{at[b'200']}"
    screen.press(_CTRL_C)
    assert screen.process.wait(30) == 0
    eventually(lambda: screen.drawn.endswith("\x1b[?25h") or _OWN_SCREEN in screen.drawn, what="the screen before")
    assert screen.drawn.count(_OTHER_SCREEN) == screen.drawn.count(_OWN_SCREEN) == 1
    assert "Traceback" not in screen.drawn
