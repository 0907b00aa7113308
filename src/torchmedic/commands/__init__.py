"""One thin file per command: `SUMMARY`, `configure(parser)` and `execute(arguments)`."""
