"""Checks before the first task starts: flows, permissions, topics on the target."""
