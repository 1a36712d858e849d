"""The command line of `scripts/gvisor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gvisor_series.checkout import checkout
from gvisor_series.export import export
from gvisor_series.fault import Fault
from gvisor_series.rebase import rebase
from gvisor_series.upstream import Upstream, fetch, pinned

NATIVE = Path(__file__).resolve().parents[2] / "native"
ABOUT = """\
Edit our changes to gVisor (native/) with git, or move them to another version of gVisor.

  scripts/gvisor checkout DIR    the pinned gVisor, tagged, and a commit for each patch
  cd DIR && git rebase -i VERSION    edit, add, drop or move commits
  scripts/gvisor export DIR      the commits become native/ again
"""
NAMES = """\
A commit's subject names its patch: `late-pages` is native/patches/late-pages/late-pages.patch, and
`volumes/owner` is native/patches/volumes/owner.patch. Files that a commit adds belong to native/overlay.
"""
CHECKOUT = (
    "Make a git repository in DIR: gVisor as native/go.mod pins it, then a commit for each patch in order."
)
REBASE = """\
Fetch another version of gVisor with Go, and rebase the commits in DIR on it. Where a patch does not fit, it
stops as `git rebase` does. Once it is through, export.
"""
EXPORT = """\
Write the commits in DIR to native/: patches, files of the overlay, the series, and the list of these files in
READMEs. A patch that still makes the same change is left as it is.
"""


def main(argv: Sequence[str] | None = None, native: Path = NATIVE) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "checkout":
            print("\n".join(checkout(arguments.directory, native, fetch(pinned(native), native))))
            return 0
        if arguments.command == "rebase":
            told = _rebased(arguments.directory, fetch(arguments.version, native), skip=arguments.skip)
        else:
            told = export(arguments.directory, native, drop=arguments.drop)
    except Fault as fault:
        print(f"gvisor: {fault}", file=sys.stderr)
        return 1
    print("\n".join(told))
    return 0


def _rebased(directory: Path, upstream: Upstream, *, skip: bool) -> list[str]:
    told = []
    for patch, conflicts in rebase(directory, upstream, skip=skip).items():
        told += [f"left out: {patch}", *(f"  {conflict}" for conflict in conflicts)]
    return [*told, f"{directory} is at {upstream.version}; next: scripts/gvisor export {directory}"]


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="scripts/gvisor", description=ABOUT, epilog=NAMES, formatter_class=plain
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = commands.add_parser(
        "checkout", help="make a repository of the pinned gVisor", description=CHECKOUT
    )
    moved = commands.add_parser("rebase", help="move the commits to another gVisor", description=REBASE)
    written = commands.add_parser("export", help="write the commits back to native/", description=EXPORT)
    made.add_argument("directory", type=Path, metavar="DIR", help="where to make it: new or empty")
    for command in (moved, written):
        command.add_argument("directory", type=Path, metavar="DIR", help="what `checkout` made")
    moved.add_argument("version", metavar="VERSION", help="as Go names it, such as v0.0.0-…")
    moved.add_argument(
        "--skip", action="store_true", help="leave out each patch that does not fit, and list them"
    )
    written.add_argument("--drop", action="store_true", help="remove patches whose commit is empty or gone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
