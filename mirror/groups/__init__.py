"""Consumer groups: their committed offsets on the source are translated, and committed on the target."""
