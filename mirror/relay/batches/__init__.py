"""From source batches to target batches: as bytes, or decoded and re-encoded. No I/O."""
