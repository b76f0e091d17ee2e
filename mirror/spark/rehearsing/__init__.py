"""Reads what a rehearsal needs from both clusters of a flow, and changes nothing on either."""
