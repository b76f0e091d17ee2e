"""Which groups a round asks for: what the source's coordinators have written says which have changed."""
