"""One attempt to copy a range: its commits, its batches in flight, and what it reads."""
