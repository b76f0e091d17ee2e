"""jobs/RUNBOOKS.md: its commands, and what is said of each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "jobs" / "RUNBOOKS.md"
SATURDAY: Final = "A migration on a Saturday"
SUNDAY: Final = "Home on a Sunday"
NIGHT: Final = "A cluster is lost at night, and the way back"
STRIMZI: Final = "Leave MirrorMaker 2 on Strimzi"
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r'(?P<command>.*?) +# (?P<status>\d)(?:, prints "(?P<prints>[^"]+)")?(?:: .*)?')


@dataclass(frozen=True)
class Step:
    """A command of the page."""

    command: str
    status: int
    """The exit status that it should have."""
    prints: str
    """A part of what it then prints, perhaps empty."""


def blocks(title: str, language: str) -> Iterator[str]:
    """Yield the blocks in this language of a section; a block of commands has none."""
    section = PAGE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return (text for kind, text in _BLOCK.findall(section) if kind == language)


def steps(title: str) -> list[Step]:
    """The commands of a section, in its order. Raises AssertionError for a line that does not say its exit status."""
    found = []
    for line in "".join(blocks(title, "")).splitlines():
        match = _LINE.fullmatch(line)
        assert match, f"no exit status: {line}"
        found.append(Step(match["command"], int(match["status"]), match["prints"] or ""))
    return found


def environment(*programs: Path) -> dict[str, str]:
    """The environment of a reader, with ``mirror`` and these folders in the PATH."""
    path = [*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(path), "MIRROR_CONFIG": "mirror.toml"}


class Reader:
    """Someone who has the page and an empty folder, and types one command after the other."""

    def __init__(self, title: str, folder: Path, names: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """``names``: what the page says -> what is meant here, such as addresses."""
        self.folder: Final = folder
        self._names: Final = names
        self._environment: Final = environment
        self._left: Final = steps(title)

    def write(self, file: str, text: str) -> None:
        """Write a file that the page shows."""
        (self.folder / file).write_text(self._meant(text))

    def skip_to(self, command: str) -> None:
        """Leave out what is in front of a command."""
        while self._left[0].command != command:
            del self._left[0]

    def type(self, beginning: str) -> str:
        """Type the next command, which begins so; return what it prints, which has to be as the page says."""
        step = self._left.pop(0)
        assert step.command.startswith(beginning), step
        command = self._meant(step.command)
        sys.stdout.write(f"$ {command}\n")
        said = ""
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=dict(self._environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                said += line
        assert process.returncode == step.status, f"{command}\n{said}"
        assert step.prints in " ".join(said.split()), f"{command}\n{said}"
        return said

    @property
    def is_done(self) -> bool:
        """Whether no command of the section is left."""
        return not self._left

    def _meant(self, text: str) -> str:
        for said, meant in self._names.items():
            text = text.replace(said, meant)
        return text
