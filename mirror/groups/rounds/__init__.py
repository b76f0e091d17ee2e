"""The steps of a round: which rows there are, what they translate to, what is decided, and what is known afterwards."""
