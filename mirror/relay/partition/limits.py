"""The limits of a copy's retries, and its pauses."""

from __future__ import annotations

from typing import Final

ABORT_TIMEOUT_MS: Final = 5_000
"""How long to wait for an abort. After that, the next fence or transaction.timeout.ms ends the transaction."""
FAILURE_BACKOFF_MS: Final = 15_000
"""How long a followed partition that has failed waits before its next attempt: the source may be back by then.

One that was fenced waits as long: by then the control record says whether another run has claimed the flow.
"""
FAILURE_BACKOFF_MAX_MS: Final = 60_000
"""How long it waits after failures in a row, with no commit in between: 10,000 partitions that wait for a person begin
170 attempts a second instead of 670."""
CONFIRM_MS: Final = 1_000
"""How soon a fenced copy asks again whether another run has claimed the flow."""
MAX_ABORTS_IN_A_ROW: Final = 3
"""How often in a row a transaction that the brokers could not end is retried in a new one."""
MAX_UNEXPLAINED_GAPS: Final = 3
"""How often in a row the source may report a gap in which, by its own log bounds, nothing is missing."""
MAX_REFETCHES: Final = 2
"""How often a damaged batch is fetched again."""
