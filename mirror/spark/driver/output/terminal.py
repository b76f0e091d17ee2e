"""A console that prints every text literally, whatever names and messages of other parties it contains."""

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
"""The width of a table that goes to a file or pipe, in columns."""


class Terminal(Console):
    """A console that shows control characters of a text instead of sending them, so that no text can forge a line.

    A run's host and a topic's error are texts that another client, or a broker, has written. rich removes some control
    characters, but not the escape character.
    """

    def __init__(self, file: IO[str] | None = None, *, terminal: bool = False, encoding: str | None = None) -> None:
        """``terminal``: treat ``file`` (default: stdout) as a terminal although it is a pipe to one.

        ``encoding`` is that of the place to which such a pipe leads; None: that of ``file``.
        """
        self._encoding: Final = encoding
        wide = terminal or (file or sys.stdout).isatty()
        super().__init__(file=file, force_terminal=True if terminal else None, width=None if wide else PLAIN_WIDTH)

    @property
    def encoding(self) -> str:
        """The encoding by which rich decides whether the lines of a table can be printed."""
        return self._encoding or super().encoding

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with escaped texts. rich calls this for every cell, title, caption and line, before it wraps them."""
        if isinstance(renderable, str):
            renderable = self.render_str(renderable, markup=False, highlight=False)
        return super().render(_escaped(renderable) if isinstance(renderable, Text) else renderable, options)


def _escaped(text: Text) -> Text:
    return text if text.plain.isprintable() else text.blank_copy(printable(text.plain))
