"""The producer core (KIP-91, KIP-185, KIP-580, KIP-912). No I/O."""
