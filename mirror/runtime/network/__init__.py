"""Sockets, TLS, credentials and the selector loop."""
