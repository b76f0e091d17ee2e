"""``mirror exporter``: what is known of all flows of a file, for Prometheus, OTLP, probes and people; it only reads."""
