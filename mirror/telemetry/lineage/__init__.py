"""OpenLineage: which topics a run reads and writes, how much it has copied, and what a verification has found."""
