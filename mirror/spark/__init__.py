"""Planning, copying and reporting as a Spark job: the source ``mirror-ranges``, the sink ``mirror``, the driver."""
