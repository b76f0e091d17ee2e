"""Decisions that both client cores share: metadata, leaders, coordinators, connections, calls. No I/O."""
