"""What the machine does in its states: opens an attempt, copies, and ends it. No I/O."""
