"""How far each partition is copied, and what the clusters answer when a copy starts."""
