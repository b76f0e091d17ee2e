"""Brings what the target's topics are, not what they hold, in step with the source: their configurations."""
