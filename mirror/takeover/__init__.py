"""Goes on where MirrorMaker 2 stopped, in its target topics, and gives them back."""
