"""How far each partition is behind. Pure."""
