"""The only sockets, threads and clocks, and the faces that application threads use."""
