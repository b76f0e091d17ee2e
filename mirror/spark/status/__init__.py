"""How far a flow is: the progress on the target against the ends of the source."""
