"""The arguments of git and what it prints, without running it. Its output is the guest's, so all is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from atoll.errors import AgentError, InvalidSpecError
from atoll.types import GitBranch, GitChange, GitCommit, GitStatus, GuestPath
from atoll.types.internal import check_text, path_text

# `git` asks nobody, prints no colours and starts no pager, and says the same in every country
ENV = {"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C.UTF-8", "GIT_EDITOR": "true"}
_BRANCH_FORMAT = "%(HEAD)%00%(refname)%00%(objectname)%00%(upstream:short)"
_COMMIT_FORMAT = "%H%x00%P%x00%an%x00%ae%x00%at%x00%B%x00"
_COMMIT_FIELDS = 6
_IDENTITY = re.compile(r"([^<>\n]*[^<>\s])\s*<([^<>\s]+)>")
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LETTERS = frozenset(".MTADRCU?")


def check_ref(what: str, name: str) -> str:
    """Return the name of a branch, remote or commit, or refuse what git could take for an option.

    Raises:
        InvalidSpecError: It is empty, begins with ``-``, or has a space or control character.
    """
    check_text(what, name)
    if not name or name[0] == "-" or any(char.isspace() or not char.isprintable() for char in name):
        raise InvalidSpecError(f"{name!r} cannot be a {what}", hint=f"give the {what}'s name")
    return name


def check_url(url: str) -> str:
    """Return the address of a repository.

    Raises:
        InvalidSpecError: It is empty, has a control character, or contains a password.
    """
    check_text("url", url)
    if not url or any(not char.isprintable() for char in url):
        raise InvalidSpecError(f"{url!r} is not an address", hint="give one like https://host/repository.git")
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    if password:
        raise InvalidSpecError(
            "the url has a password, which would stay in the sandbox",
            hint="keep it outside: a `Secret`, and a rule that injects it as `basic`",
        )
    return url


def directory_of(url: str) -> str:
    """Return the name of the directory that a clone makes, as git chooses it.

    Raises:
        InvalidSpecError: The address has no name at its end.
    """
    name = url.rstrip("/").removesuffix("/.git").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    if name.strip(".") == "" or name[0] == "-":
        raise InvalidSpecError(f"{url!r} does not say a name for the directory", hint="give a path")
    return name


def paths_of(paths: GuestPath | Sequence[GuestPath]) -> list[str]:
    """Return paths as arguments that are only paths: no options, and no patterns of git's own."""
    given = [paths] if isinstance(paths, str) or not isinstance(paths, Sequence) else paths
    return ["--", *map(path_text, given)]


def identity(author: str | None) -> dict[str, str]:
    """Return the variables that make ``Name <email>`` the author and committer.

    Raises:
        InvalidSpecError: It has another form.
    """
    if author is None:
        return {}
    check_text("author", author)
    matched = _IDENTITY.fullmatch(author.strip())
    if matched is None:
        raise InvalidSpecError(f"the author is {author!r}", hint="give it as 'Name <email>'")
    name, email = matched.groups()
    return {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", email))
    }


STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
BRANCHES = ("for-each-ref", f"--format={_BRANCH_FORMAT}", "refs/heads")


def log_arguments(limit: int, ref: str | None, paths: list[str]) -> list[str]:
    """Return the arguments that print commits for ``commits_from``."""
    return ["log", f"--max-count={limit}", f"--format=tformat:{_COMMIT_FORMAT}", ref or "HEAD", *paths]


def status_from(output: str) -> GitStatus:
    """Read `git status --porcelain=v2 --branch -z`.

    Raises:
        AgentError: It is none.
    """
    head: dict[str, str] = {}
    changes: list[GitChange] = []
    parts = iter(output.split("\0"))
    for part in parts:
        if part.startswith("# "):
            name, _, value = part[2:].partition(" ")
            head[name] = value
        elif part:
            changes.append(_change(part, parts))
    ahead, behind = _counts(head.get("branch.ab", "+0 -0"))
    branch, commit = head.get("branch.head"), head.get("branch.oid")
    return GitStatus(
        branch=None if branch == "(detached)" else branch,
        commit=None if commit == "(initial)" else commit,
        upstream=head.get("branch.upstream"),
        ahead=ahead,
        behind=behind,
        changes=changes,
    )


def _counts(text: str) -> tuple[int, int]:
    matched = re.fullmatch(r"\+(\d{1,15}) -(\d{1,15})", text)
    if matched is None:
        raise _strange(text)
    return int(matched[1]), int(matched[2])


def _change(row: str, parts: Iterator[str]) -> GitChange:
    kind, _, rest = row.partition(" ")
    if kind == "?":
        return GitChange(path=rest, index="?", worktree="?")
    # how many fields there are, the path included
    fields = rest.split(" ", {"1": 7, "2": 8, "u": 9}.get(kind, 0))
    letters = fields[0]
    if len(fields) < 8 or len(letters) != 2 or not set(letters) <= _LETTERS:
        raise _strange(row)
    return GitChange(
        path=fields[-1],
        index=letters[0],
        worktree=letters[1],
        renamed_from=next(parts, "") if kind == "2" else None,
        conflict=kind == "u",
    )


def branches_from(output: str) -> list[GitBranch]:
    """Read the rows of ``BRANCHES``.

    Raises:
        AgentError: They are none.
    """
    branches = []
    for row in output.splitlines():
        fields = row.split("\0")
        if len(fields) != 4 or not _ID.fullmatch(fields[2]):
            raise _strange(row)
        name = fields[1].removeprefix("refs/heads/")
        branches.append(
            GitBranch(name=name, commit=fields[2], current=fields[0] == "*", upstream=fields[3] or None)
        )
    return branches


def commits_from(output: str) -> list[GitCommit]:
    """Read what ``log_arguments`` prints.

    Raises:
        AgentError: It is something else.
    """
    parts = output.split("\0")
    if len(parts) % _COMMIT_FIELDS != 1 or parts[-1].strip():
        raise _strange(output[-200:])
    commits = []
    for at in range(0, len(parts) - 1, _COMMIT_FIELDS):
        commit, parents, author, email, moment, message = parts[at : at + _COMMIT_FIELDS]
        commit = commit.strip()
        if not _ID.fullmatch(commit) or not re.fullmatch(r"\d{1,15}", moment):
            raise _strange(commit)
        commits.append(
            GitCommit(
                commit=commit,
                parents=parents.split(),
                author=author,
                email=email,
                authored_at=int(moment),
                message=message.strip("\n"),
            )
        )
    return commits


def commit_from(output: str) -> str:
    """Return the id that `git rev-parse` printed.

    Raises:
        AgentError: It is none.
    """
    commit = output.strip()
    if not _ID.fullmatch(commit):
        raise _strange(commit)
    return commit


def _strange(row: str) -> AgentError:
    return AgentError(f"git in the sandbox printed something unknown: {row[:200]!r}")
