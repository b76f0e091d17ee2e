"""What the subcommands show: tables, lines and JSON documents."""
