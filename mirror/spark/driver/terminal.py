"""Where tables and lines for people are printed: as text, whatever names and messages of others are in them."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from mirror.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

PLAIN_WIDTH: Final = 160
"""Columns of a table that goes to a file or pipe; no terminal's width to keep to."""


class Terminal(Console):
    """A console on which every text, in whatever cell, is shown as it is: it cannot command a terminal or forge a line.

    A run's host and a topic's error are texts that another client, or a broker, has written. rich removes some control
    characters, but not the escape character. ``terminal`` says that ``file`` (stdout) leads to one although it is none.
    """

    def __init__(self, file: IO[str] | None = None, *, terminal: bool = False) -> None:
        wide = terminal or (file or sys.stdout).isatty()
        super().__init__(file=file, force_terminal=True if terminal else None, width=None if wide else PLAIN_WIDTH)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does it. Every cell, title, caption and line passes through here before it is wrapped and styled."""
        if isinstance(renderable, str):
            renderable = self.render_str(renderable, markup=False, highlight=False)
        return super().render(_shown(renderable) if isinstance(renderable, Text) else renderable, options)


def _shown(text: Text) -> Text:
    return text if text.plain.isprintable() else text.blank_copy(printable(text.plain))
