"""Where records were produced: the registry of the producer ids of flows, and who writes and reads it."""
