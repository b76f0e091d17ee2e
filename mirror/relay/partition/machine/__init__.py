"""The state machine of a partition's copy: it opens an attempt, copies, and ends it. No I/O."""
