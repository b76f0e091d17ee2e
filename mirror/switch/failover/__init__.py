"""Moves clients to the target while the source is away: assesses, ends the old flow, and opens the target."""
