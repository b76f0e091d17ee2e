"""What moves users of MirrorMaker 2 to this project: their configuration, read and written as ours."""
