"""The linter around the checker: discovery, configuration, output."""
