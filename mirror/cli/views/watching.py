"""A view that is shown again and again: in place on a terminal, else below the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rich.live import Live

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from mirror.spark.driver.output.terminal import Terminal


def show_repeatedly(
    view: Callable[[Terminal], RenderableType], pause: Callable[[], None], console: Terminal
) -> NoReturn:
    """Show what ``view`` returns for ``console``, and ``pause``, until one of both raises.

    The terminal is as before then.
    """
    if not console.is_terminal:
        while True:
            console.print(view(console))
            pause()
    # In its screen each view is drawn over the one before, without erasing that: nothing flickers, or stays behind.
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        while True:
            screen.update(view(console), refresh=True)
            pause()
