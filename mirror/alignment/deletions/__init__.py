"""Deletes topics that a flow has created on the target, once their source topics are deleted; by opt-in."""
