"""Rules about the linter's own comments; one rule, one file, its documentation inside."""
