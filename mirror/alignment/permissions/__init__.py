"""Brings the ACLs of the target's topics, and of groups if the user wants it, in step with the source."""
