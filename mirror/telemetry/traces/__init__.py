"""Spans of periods, tasks and partitions. Pure."""
