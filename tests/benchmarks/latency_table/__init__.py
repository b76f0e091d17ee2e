"""The latency and the CPU of each way to copy, at loads of few and of many partitions, in rounds."""
