"""Which flows of a stream run, and which do not and why: each cause that goes away ends by itself."""
