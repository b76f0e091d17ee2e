"""The Kafka wire protocol: encode and decode messages and record batches, without I/O."""
