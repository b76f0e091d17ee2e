"""What it would cost if consumers switched to the other cluster now: decided from what was read, without clients."""
