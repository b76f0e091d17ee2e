"""The status of a flow: its lag, the run that copies it, and its last errors."""
