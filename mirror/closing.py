"""What has to be closed, as a context manager."""

from __future__ import annotations

from typing import Self


class Closing:
    """The end of its ``with`` statement closes it."""

    def close(self) -> None:
        """Release what it has opened."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
