"""Memory that threads share or give back: buffer.memory, receive buffers, malloc."""
