"""The Go modules of this repository, and the tool that checks them beside `go vet`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATICCHECK = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"


def go_modules() -> list[str]:
    """Each directory with a go.mod, but for `native`, whose files are part of gVisor's tree."""
    found = [*ROOT.glob("*/go.mod"), *ROOT.glob("*/*/go.mod")]
    return sorted(str(path.parent.relative_to(ROOT)) for path in found if path.parent.name != "native")
