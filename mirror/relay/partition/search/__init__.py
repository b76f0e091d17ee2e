"""The search for the exact position of a copy, if its progress is a lower bound."""
