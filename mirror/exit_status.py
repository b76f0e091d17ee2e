"""The exit statuses of commands and jobs. Besides: 2 is wrong usage, 130 and 143 an interruption."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""It could not run, or not for each flow."""
ATTENTION: Final = 3
"""It has done its work, and found something that needs attention: the help of the command says what."""
HELD: Final = 4
"""A person has to decide before a flow copies again: it is held, or MirrorMaker 2 copies again."""
STOPPED_FENCED: Final = 5
"""A switch has stopped while producers are fenced: the command goes on with it, or rolls it back."""
ROLLED_BACK: Final = 6
"""A switch was rolled back: clients use the source as before."""
INCOMPLETE: Final = 7
"""A switch is open, so that it cannot be rolled back, and not done: the command goes on with it."""
