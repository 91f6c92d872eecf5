"""The `millstream` command: one file per verb. The only folder that prints."""
