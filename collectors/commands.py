"""How a user's command is started and shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)


def shown_command(command: Sequence[str]) -> list[str]:
    """Return a command without the values of options that look like secrets."""
    shown: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        if hide:
            shown.append("***")
            hide = False
        elif _SECRET.search(name) and (name.startswith("-") or name.isupper()):
            shown.append(f"{name}=***" if equals else word)
            hide = not equals
        else:
            shown.append(word)
    return shown
