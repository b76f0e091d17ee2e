"""How far each partition is copied, and what a copy looks up on the clusters when it starts."""
