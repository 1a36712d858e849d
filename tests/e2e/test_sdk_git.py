from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.errors import GitError, InvalidSpecError

ADA = "Ada <ada@example.com>"


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create(network="none") as sandbox:
        sandbox.run("git config --global init.defaultBranch main && git init --bare origin.git", check=True)
        yield sandbox


def test_a_repository_is_cloned_changed_and_pushed(sandbox: Sandbox) -> None:
    git, files = sandbox.git, sandbox.files
    repo = git.clone("/home/user/origin.git", "work/here")
    assert repo == "work/here"
    status = git.status(repo)
    assert (status.branch, status.commit, status.clean) == ("main", None, True)

    files.write_many({f"{repo}/a.py": "one\n", f"{repo}/-f": "an option?\n", f"{repo}/*": "a pattern?\n"})
    assert {change.path: change.index for change in git.status(repo).changes} == {
        "*": "?",
        "-f": "?",
        "a.py": "?",
    }
    git.add(repo, ["-f", "*"])
    assert {change.path: change.index for change in git.status(repo).changes} == {
        "*": "A",
        "-f": "A",
        "a.py": "?",
    }
    first = git.commit(repo, "first\n\n-m is no option", author=ADA, everything=True)
    assert git.status(repo).clean
    git.push(repo, set_upstream=True)
    assert git.status(repo).upstream == "origin/main"

    files.edit(f"{repo}/a.py", "one", "two")
    assert "-one\n+two\n" in git.diff(repo)
    assert git.diff(repo, staged=True) == ""
    assert git.diff(repo, paths="-f") == ""
    second = git.commit(repo, "second", author=ADA, everything=True)
    assert git.status(repo).ahead == 1
    commits = git.log(repo)
    assert [(one.commit, one.author, one.email) for one in commits] == [
        (second, "Ada", "ada@example.com"),
        (first, "Ada", "ada@example.com"),
    ]
    assert (commits[0].parents, commits[1].message) == ([first], "first\n\n-m is no option")
    assert [one.commit for one in git.log(repo, paths="-f")] == [first]
    assert git.log(repo, "origin/main..main", limit=1)[0].commit == second


def test_branches_are_made_checked_out_and_pulled(sandbox: Sandbox) -> None:
    git, files = sandbox.git, sandbox.files
    sandbox.run("git init -q --bare other.git", check=True)
    one, two = (git.clone("/home/user/other.git", f"~/{name}") for name in ("one", "two"))
    files.write(f"{one}/a", "1\n")
    start = git.commit(one, "a", author=ADA, everything=True)
    git.push(one, "origin", "main", set_upstream=True)
    git.branch(one, "later", start=start)
    git.checkout(one, "topic", create=True)
    assert [(each.name, each.current) for each in git.branches(one)] == [
        ("later", False),
        ("main", False),
        ("topic", True),
    ]
    git.checkout(one, "main")
    git.pull(two, "origin", "main")
    files.write(f"{two}/a", "2\n")
    git.commit(two, "b", author=ADA, everything=True)
    git.push(two)
    git.pull(one)
    assert files.read(f"{one}/a") == "2\n"
    assert git.clone("/home/user/other.git") == "other"
    assert git.clone("/home/user/other.git", "shallow", branch="main", depth=1) == "shallow"

    files.write(f"{one}/a", "ours\n")
    files.write(f"{two}/a", "theirs\n")
    for repo in (one, two):
        git.commit(repo, "conflict", author=ADA, everything=True)
    git.push(two)
    with pytest.raises(GitError, match="rejected"):
        git.push(one)
    with pytest.raises(GitError, match=r"(?s)who you are.*give `author=") as unknown:
        git.pull(one)
    assert unknown.value.result.exit_code == 128
    with pytest.raises(GitError, match="CONFLICT"):
        git.pull(one, author=ADA)
    assert [(change.path, change.conflict) for change in git.status(one).changes] == [("a", True)]


def test_failures_of_git_say_what_git_said(sandbox: Sandbox) -> None:
    git = sandbox.git
    with pytest.raises(GitError, match="git clone ended with 128: .*does not exist") as failed:
        git.clone("/home/user/nosuch", "never")
    assert failed.value.result.exit_code == 128
    assert not sandbox.files.exists("never")
    with pytest.raises(GitError, match="not a git repository"):
        git.status("/tmp")
    with pytest.raises(FileNotFoundError, match="nosuch"):
        git.status("nosuch")
    with pytest.raises(InvalidSpecError, match="password"):
        git.clone("https://me:token@example.com/a.git")
    with pytest.raises(InvalidSpecError):
        git.checkout("work/here", "--orphan")
    with pytest.raises(GitError):
        git.clone("--upload-pack=touch /tmp/owned", "never")
    assert not sandbox.files.exists("/tmp/owned")
