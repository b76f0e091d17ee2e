"""The subcommands of ``mirror``, one module each."""
