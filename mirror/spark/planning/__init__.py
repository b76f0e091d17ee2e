"""Which ranges an epoch copies: source offsets, progress, limits, packing into tasks."""
