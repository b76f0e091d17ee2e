"""Positions that are in no consumer group, translated: checkpoints of engines, lists of offsets, snapshots."""
