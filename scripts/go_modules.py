"""The Go modules of this repository, and the tool that checks them beside `go vet`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATICCHECK = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"


def go_modules() -> list[str]:
    """Each directory with a go.mod, but for `native`, whose files are part of gVisor's tree.

    ``.`` is the module of the rooms that share code: `channel`, `confine`, `edge`, `policy` and `relay`.
    """
    found = [ROOT / "go.mod", *ROOT.glob("*/go.mod"), *ROOT.glob("*/*/go.mod")]
    return sorted(str(path.parent.relative_to(ROOT)) for path in found if path.parent.name != "native")


def test_files(module: str) -> list[Path]:
    """The files with tests of a module, without those of modules below it."""
    others = [ROOT / other for other in go_modules() if other != module]
    found = sorted((ROOT / module).rglob("*_test.go"))
    return [path for path in found if not any(other != ROOT and other in path.parents for other in others)]
