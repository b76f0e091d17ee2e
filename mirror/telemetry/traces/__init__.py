"""Spans of epochs, tasks and partitions. Pure."""
