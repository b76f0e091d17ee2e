"""The two ways in which a partition is copied exactly once."""

from __future__ import annotations

import enum


class Way(enum.StrEnum):
    """How the batches of a partition go to the target, exactly once. The values are stored on brokers."""

    TRANSACTIONS = "transactions"
    """Each batch is part of a transaction that also commits the progress (KIP-98)."""
    SEQUENCES = "sequences"
    """Batches are idempotent, behind a fence that shuts out earlier attempts. The log says what was appended."""
