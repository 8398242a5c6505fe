"""Ids that the caller chooses."""

import secrets

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def exec_id() -> str:
    """An id for a command, which the daemon takes once."""
    return "ex_" + "".join(secrets.choice(_LETTERS) for _ in range(20))
