"""A network of its own for a copier: links with a delay, a rate and losses, which can be cut."""
