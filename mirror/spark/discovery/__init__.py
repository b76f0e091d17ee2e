"""How a stream finds new topics and partitions of its source, and has a running epoch copy them."""
