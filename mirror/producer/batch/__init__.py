"""Batches from `send` to their end: accumulation, order, memory, expiry. No I/O."""
