"""The exit statuses of commands. Besides: 2 is wrong usage, 130 and 143 an interruption."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
ATTENTION: Final = 3
"""The command has done its work, and found something that needs attention: its help says what."""
