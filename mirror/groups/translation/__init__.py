"""Translates positions: the logs of a round, partition by partition."""
