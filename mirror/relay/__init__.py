"""Copying a range: fetch, patch, produce, progress."""
