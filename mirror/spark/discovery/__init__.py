"""How a stream finds new topics and partitions of its source, and has the tasks of its running job copy them."""
