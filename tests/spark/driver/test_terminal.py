"""Nothing that another client or a broker has named speaks to the terminal, in whatever place of a table it stands."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirror.spark.driver.output.terminal import PLAIN_WIDTH, Terminal

HOSTILE = "ev\x1b]0;title\x07\x1b[2J\x9b31m\u202egpj\r\nflow f: 0 behind\t[red]"
SHOWN = r"ev\x1b]0;title\x1b[2J\x9b31m\u202egpj\nflowf:0behind\t[red]"
"""Without blanks; rich itself leaves the bell and the carriage return out."""


def words(printed: str) -> str:
    """What is in a table's cells, wrapped or not."""
    return re.sub(r"[\s│┃]", "", printed)


def table(text: RenderableType) -> Table:
    made = Table(title=Text(HOSTILE), caption=Text(HOSTILE), show_footer=True)
    made.add_column(Text(HOSTILE), Text(HOSTILE), overflow="fold")
    made.add_column("other", no_wrap=True)
    made.add_row(text, "1")
    return made


PLACES = {
    "line": Text(HOSTILE),
    "styled": Text(HOSTILE, style="red"),
    "words": HOSTILE,
    "group": Group(Text(HOSTILE), Text(HOSTILE)),
    "cell": table(Text(HOSTILE)),
    "plain cell": table(HOSTILE),
}


@pytest.mark.parametrize("what", PLACES.values(), ids=PLACES)
def test_control_characters_are_printed_as_text(what: RenderableType) -> None:
    out = io.StringIO()
    Terminal(out).print(what, markup=False, highlight=False)
    lines = out.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    assert SHOWN in words("".join(lines))
    assert not any(line.startswith("flow f") for line in lines)


def test_on_a_terminal_only_the_console_s_own_sequences_are_sent() -> None:
    out = io.StringIO()
    console = Terminal(out, terminal=True)
    console.width = PLAIN_WIDTH
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        screen.update(table(Text(HOSTILE, style="red")), refresh=True)
    sent = out.getvalue()
    assert SHOWN in words(re.sub(r"\x1b\[[0-9;]*m", "", sent))
    assert "\x1b[31m" in sent, "the style is the console's own"
    for part in ("\x1b]0;", "\x9b", "\x07", "\u202e", "\x1b[2Jmil"):
        assert part not in sent


def test_printable_text_is_unchanged() -> None:
    out = io.StringIO()
    line = Text("flow größe: ").append("日本 caught up", style="green")
    Terminal(out, terminal=True).print(line)
    assert out.getvalue() == "flow größe: \x1b[32m日本 caught up\x1b[0m\n"
