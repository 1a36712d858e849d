"""The state of a git repository in a sandbox."""

from __future__ import annotations

import msgspec


class GitChange(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A file that differs from the last commit.

    ``index`` is the change that `git add` has taken, ``worktree`` the change that it has not, as git's
    letters: ``M`` changed, ``T`` another kind of file, ``A`` new, ``D`` deleted, ``R`` renamed, ``C`` copied,
    ``U`` in conflict, ``?`` unknown to git, ``.`` no difference. ``renamed_from`` is the path in the commit.
    ``conflict`` means that a merge needs your decision.
    """

    path: str
    index: str
    worktree: str
    renamed_from: str | None = None
    conflict: bool = False


class GitStatus(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The state of a working tree.

    ``branch`` is None if no branch is checked out, ``commit`` before the first commit. ``ahead`` and
    ``behind`` count commits against ``upstream``; without one they are 0.
    """

    branch: str | None = None
    commit: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    changes: list[GitChange] = []

    @property
    def clean(self) -> bool:
        """Whether nothing differs from the last commit."""
        return not self.changes


class GitBranch(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A branch, and the commit at its end. ``current`` is the one that is checked out."""

    name: str
    commit: str
    current: bool = False
    upstream: str | None = None


class GitCommit(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A commit. ``authored_at`` is in Unix seconds, and ``message`` is all of its text."""

    commit: str
    parents: list[str]
    author: str
    email: str
    authored_at: int
    message: str
