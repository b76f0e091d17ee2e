"""The only sockets, threads and clocks, and the public clients."""
