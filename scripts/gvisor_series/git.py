"""git in the repository of a checkout. It neither reads nor writes the settings of its user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gvisor_series.fault import Fault

NAME, EMAIL = "atoll", "atoll@localhost"
SETTINGS = (
    f"user.name={NAME}",
    f"user.email={EMAIL}",
    "core.hooksPath=/dev/null",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "commit.gpgSign=false",
    "advice.mergeConflict=false",
)
REGULAR = "100644"
DIFF = (
    *("diff", "--text", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--unified=3"),
    *("--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic", "--src-prefix=a/"),
    "--dst-prefix=b/",
)
# A line of the file is what it is, whatever .gitattributes of gVisor say.
ATTRIBUTES = "* -text -ident !eol !filter !diff !merge !working-tree-encoding\n"


@dataclass(frozen=True)
class Edit:
    """What a commit does to a file: modes and ids of contents before and after it."""

    path: str
    modes: tuple[str, str]
    ids: tuple[str, str]
    status: str


class Repository:
    """The git repository at ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()

    @classmethod
    def made(cls, directory: Path) -> Repository:
        """A new one, on the branch ``atoll``, in a directory that is new or empty."""
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Fault(f"{directory} is not empty: name a directory that is new")
        directory.mkdir(parents=True, exist_ok=True)
        repository = cls(directory)
        repository.git("init", "-q", "--initial-branch=atoll", "--object-format=sha1", "--template=")
        attributes = repository.directory / ".git/info/attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text(ATTRIBUTES)
        return repository

    @classmethod
    def found(cls, directory: Path) -> Repository:
        """The one that ``checkout`` made, with nothing half done in it."""
        repository = cls(directory)
        if not (repository.directory / ".git").is_dir():
            raise Fault(f"{directory} is no checkout: make one with `scripts/gvisor checkout {directory}`")
        if repository.rebasing():
            raise Fault(
                f"{directory} is in the middle of a rebase: `git rebase --continue` or `--abort` first"
            )
        if uncommitted := repository.text("status", "--porcelain").splitlines():
            raise Fault(f"{directory} has changes that no commit has, as {uncommitted[0][3:]}: commit them")
        return repository

    def run(self, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        settings = (*SETTINGS, f"safe.directory={self.directory}")
        command = ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        return subprocess.run(
            command, cwd=self.directory, env=env, input=given, capture_output=True, check=False
        )

    def git(self, *arguments: str, given: bytes | None = None) -> bytes:
        done = self.run(*arguments, given=given)
        if done.returncode != 0:
            raise Fault(f"`git {arguments[0]}` failed in {self.directory}:\n{done.stderr.decode().rstrip()}")
        return done.stdout

    def text(self, *arguments: str) -> str:
        return self.git(*arguments).decode()

    def rebasing(self) -> bool:
        """Whether a rebase has stopped, for a conflict or an edit."""
        return (self.directory / ".git/rebase-merge").exists()

    def root(self) -> tuple[str, str]:
        """The commit of gVisor as it was fetched, and its version."""
        roots = self.text("log", "--max-parents=0", "--format=%H %s", "HEAD").splitlines()
        if len(roots) != 1 or self.text("rev-list", "--merges", "HEAD"):
            raise Fault(f"{self.directory} has merges: a series is one commit after the other")
        return roots[0].split()[0], roots[0].split()[-1]

    def commits(self, root: str) -> list[tuple[str, str]]:
        """Each commit after ``root`` and its subject, the first one first."""
        lines = self.text("log", "--reverse", "--format=%H %s", f"{root}..HEAD").splitlines()
        return [(line[:40], line[41:]) for line in lines]

    def paths(self, commit: str) -> set[str]:
        return set(self.text("ls-tree", "-r", "-z", "--name-only", commit).split("\0")) - {""}

    def edits(self, commit: str) -> Iterator[Edit]:
        """What ``commit`` does to each file."""
        words = self.text("diff-tree", "-r", "-z", "--no-renames", f"{commit}^", commit).split("\0")[:-1]
        for fields, path in zip(words[0::2], words[1::2], strict=True):
            old, new, before, after, status = fields.removeprefix(":").split()
            yield Edit(path, (old, new), (before, after), status)

    def contents(self, commit: str, paths: list[str]) -> dict[str, bytes]:
        """What is in each of these files, all of which are there."""
        asked = "".join(f"{commit}:{path}\n" for path in paths).encode()
        answer = self.git("cat-file", "--batch", given=asked)
        found, at = {}, 0
        for path in paths:
            end = answer.index(b"\n", at)
            size = int(answer[at:end].split()[-1])
            found[path] = answer[end + 1 : end + 1 + size]
            at = end + 1 + size + 1
        return found

    def diff(self, commit: str, paths: list[str]) -> bytes:
        """The change of these files, without lines that depend on what git names."""
        literal = [f":(literal){path}" for path in paths]
        text = self.git(*DIFF, f"{commit}^", commit, "--", *literal)
        lines = [line + b"\n" for line in text.split(b"\n")[:-1]]
        return b"".join(line for line in lines if not line.startswith((b"diff --git ", b"index ")))
