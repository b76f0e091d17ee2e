"""The asynchronous consumer core (seed 001). No I/O."""
