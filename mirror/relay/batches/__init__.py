"""Turns source batches into target batches: passed on as bytes, or decoded and re-encoded. No I/O."""
