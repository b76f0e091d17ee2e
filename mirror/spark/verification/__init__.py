"""Verification of a flow in Spark's tasks: what is compared, and the comparison of a task's partitions."""
