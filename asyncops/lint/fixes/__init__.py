"""``--fix`` and ``--diff``: cures that are certain, each tried on the checker before it is offered."""
