"""Compares what is in a flow's source with what is in its target, independently of the code that copies."""
