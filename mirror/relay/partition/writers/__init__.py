"""The ways in which one attempt writes to its target partition: it takes it over, appends, commits and yields."""
