"""Write the lists of ``src/atoll/__init__.py``: every error, value, step and handle, for type checkers.

Usage: .venv/bin/python scripts/front_door.py [--check]. With --check nothing is written, and a name that is
missing or too many is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atoll.errors
import atoll.sdk
import atoll.types

DOOR = Path(atoll.__file__)
BEGIN = "if TYPE_CHECKING:\n    from types import ModuleType\n\n"
END = "def _room("


def errors_below(kind: type[atoll.errors.AtollError]) -> set[str]:
    """The names of an error class and of all below it in ``atoll.errors``."""
    found = {kind.__name__} if kind.__module__ == atoll.errors.__name__ else set()
    return found.union(*(errors_below(child) for child in kind.__subclasses__()))


def rooms() -> dict[str, list[str]]:
    """What ``atoll`` offers, by the room that it comes from."""
    types = {name for name in atoll.types.__all__ if name[0].isupper() and not name.isupper()}
    return {
        "errors": sorted(errors_below(atoll.errors.AtollError)),
        "sdk": sorted(atoll.sdk.__all__),
        "types": sorted({*types, "NO_LIMIT"}),
    }


def lists() -> str:
    """The imports and ``__all__``, as they stand in the file."""
    text = ""
    for room, names in rooms().items():
        # in the order of ruff's imports
        ordered = sorted(names, key=lambda name: (not name.isupper(), name.lower()))
        rows = [f"        {name},\n" for name in ordered]
        text += "".join([f"    from atoll.{room} import (\n", *rows, "    )\n"])
    offered = sorted([name for names in rooms().values() for name in names] + ["__version__"])
    return "".join([text, "\n__all__ = [\n", *(f'    "{name}",\n' for name in offered), "]\n\n\n"])


def main() -> int:
    """Write the file, or check it."""
    wanted = {name for names in rooms().values() for name in names} | {"__version__"}
    if "--check" in sys.argv[1:]:
        differing = sorted(wanted ^ set(atoll.__all__))
        if differing:
            print(f"{', '.join(differing)}: run scripts/front_door.py", file=sys.stderr)
        return 1 if differing else 0
    source = DOOR.read_text()
    head, _, rest = source.partition(BEGIN)
    DOOR.write_text(f"{head}{BEGIN}{lists()}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
