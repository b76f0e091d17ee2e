"""The text of MirrorMaker 2's files: properties, JSON and YAML, as values that know their lines."""
