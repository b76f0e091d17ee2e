"""What MirrorMaker 2's users read: its names, its records, and their writers."""
