"""The copy of one range: a state machine that never waits."""
