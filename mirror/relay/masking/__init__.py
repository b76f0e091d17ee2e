"""Test copies: a sample of the keys, and masked fields. Pure."""
