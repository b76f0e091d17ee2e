"""The configuration file: it is read, overridden, checked as a whole, and becomes frozen models."""
