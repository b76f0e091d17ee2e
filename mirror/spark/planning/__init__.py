"""Which ranges a period copies: source offsets, progress, limits, packing into tasks."""
