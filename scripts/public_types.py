"""Checks that a user's type checker knows all of atoll's public surface, with pyright's `--verifytypes`.

The public surface is `atoll`, `atoll.types`, `atoll.errors` and `atoll.testing`, and what they refer to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

BIN = Path(sys.executable).parent
COMMAND = [str(BIN / "basedpyright"), "--verifytypes", "atoll", "--ignoreexternal", "--outputjson"]
# `atoll` itself re-exports from `atoll.sdk`.
ROOMS = ("sdk", "types", "errors", "testing")


def is_public(name: str) -> bool:
    """Whether a symbol is in one of the public modules; `atoll.Sandbox` is one of the package itself."""
    parts = name.split(".")
    return parts[0] == "atoll" and (len(parts) == 2 or parts[1] in ROOMS)


def unknown(symbols: list[dict[str, Any]]) -> list[str]:
    found = [each for each in symbols if is_public(each["name"]) and not each["isTypeKnown"]]
    return [f"{each['name']}: {_why(each)}" for each in found]


def _why(symbol: dict[str, Any]) -> str:
    return (
        "; ".join(" ".join(each["message"].split()) for each in symbol["diagnostics"])
        or "it refers to one of these"
    )


def main() -> int:
    # It looks for the package with the first `python` of PATH.
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(COMMAND, env=env, stdout=subprocess.PIPE, check=False)
    symbols = msgspec.json.decode(done.stdout)["typeCompleteness"]["symbols"]
    public = [each for each in symbols if is_public(each["name"])]
    if not public:
        print("public-types: pyright has found no atoll")
        return 1
    wrong = unknown(public)
    print("".join(f"{line}\n" for line in wrong), end="")
    print(f"public-types: {len(public) - len(wrong)} of {len(public)} public symbols have a known type")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
