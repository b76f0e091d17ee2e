"""Where a copy starts: what it looks up on both clusters before it can."""
