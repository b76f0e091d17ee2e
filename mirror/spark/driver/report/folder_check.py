"""Checks the report folder of a stream while it copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.spark.ledger.retention import bound_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mirror.spark.ledger.ledger import Ledger

_CHECK_INTERVAL_S: Final = 10.0
_BOUND_INTERVAL_S: Final = 60.0


class FolderCheck:
    """Checks a stream's report folder now and then: copying goes on without it, and is not recorded meanwhile."""

    def __init__(self, report_dir: Path, warn: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self.why_not: str | None = None
        """Why it cannot be written; None if it can."""
        self._dir: Final = report_dir
        self._warn: Final = warn
        self._tell: Final = tell
        self._check_s = self._bound_s = 0.0

    def check(self, ledgers: Iterable[Ledger], now_s: float) -> None:
        """Bound the folder and try to write to ``ledgers``, if it is time; ``now_s`` is monotonic."""
        if now_s >= self._bound_s:
            self._bound_s = now_s + _BOUND_INTERVAL_S
            bound_folder(self._dir)
        if now_s < self._check_s:
            return
        self._check_s = now_s + _CHECK_INTERVAL_S
        before, self.why_not = self.why_not, next(filter(None, (one.why_not_writable() for one in ledgers)), None)
        if self.why_not is not None and before is None:
            self._warn(
                f"the report folder {self._dir} cannot be written: {self.why_not}; copying goes on, and the"
                " periods that end meanwhile are missing in report.html"
            )
        elif self.why_not is None and before is not None:
            self._tell(f"the report folder {self._dir} is written again")
