"""The protocol of a connection, when it is opened again, and which connection a request takes. No I/O."""
