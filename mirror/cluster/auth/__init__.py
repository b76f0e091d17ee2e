"""Security settings, SASL mechanisms. No I/O."""
