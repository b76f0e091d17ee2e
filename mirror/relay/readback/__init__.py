"""Reads back what was committed on the target, and compares it with digests that were taken on the way."""
