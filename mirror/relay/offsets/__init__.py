"""The offset index: which source offset and which target offset are those of the same record, in both directions."""
