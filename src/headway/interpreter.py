"""Starting processes of Headway's own: the same Python, the same modules, nothing of an agent's."""

from __future__ import annotations

import os
import sys


def words(module: str, *arguments: str) -> list[str]:
    """The words that have a new interpreter call ``main`` of a module with these arguments.

    It finds modules where this one does, whatever the variables that it is started with,
    and never in the directory that it happens to be in: that may be an agent's.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = list(dict.fromkeys([here, *(place for place in sys.path if os.path.isabs(place))]))
    code = f"import sys; sys.path += {path!r}; from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", code, *arguments]
