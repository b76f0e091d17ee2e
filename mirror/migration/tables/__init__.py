"""The tables of our configuration that the settings of MirrorMaker 2 become, and their text."""
