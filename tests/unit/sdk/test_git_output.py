from __future__ import annotations

import pytest

from atoll.errors import AgentError, InvalidSpecError
from atoll.sdk._git import (
    branches_from,
    check_ref,
    check_url,
    commit_from,
    commits_from,
    directory_of,
    identity,
    paths_of,
    status_from,
)

ID = "0123456789abcdef0123456789abcdef01234567"
STATUS = (
    f"# branch.oid {ID}\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0"
    f"1 .M N... 100644 100644 100644 {ID} {ID} a file.py\0"
    f"2 R. N... 100644 100644 100644 {ID} {ID} R100 new name\0old name\0"
    f"u UU N... 100644 100644 100644 100644 {ID} {ID} {ID} both\0"
    "? tide # 1\0"
)


def test_a_status_is_read() -> None:
    status = status_from(STATUS)
    assert (status.branch, status.commit, status.upstream) == ("main", ID, "origin/main")
    assert (status.ahead, status.behind, status.clean) == (2, 1, False)
    assert [(one.path, one.index, one.worktree) for one in status.changes] == [
        ("a file.py", ".", "M"),
        ("new name", "R", "."),
        ("both", "U", "U"),
        ("tide # 1", "?", "?"),
    ]
    assert [one.renamed_from for one in status.changes] == [None, "old name", None, None]
    assert [one.conflict for one in status.changes] == [False, False, True, False]


def test_a_new_or_detached_tree_has_no_commit_or_branch() -> None:
    status = status_from("# branch.oid (initial)\0# branch.head main\0")
    assert (status.branch, status.commit, status.clean) == ("main", None, True)
    assert status_from(f"# branch.oid {ID}\0# branch.head (detached)\0").branch is None


@pytest.mark.parametrize(
    "output",
    [
        "1 .M",
        "9 x y",
        "fatal",
        f"1 .M? N... 1 1 1 {ID} {ID} a",
        f"1 xy N... 1 1 1 {ID} {ID} a",
        "# branch.ab x\0",
    ],
)
def test_what_is_no_status_is_refused(output: str) -> None:
    with pytest.raises(AgentError, match="git in the sandbox printed"):
        status_from(output)


def test_commits_are_read_with_all_of_their_message() -> None:
    parent = "f" * 40
    output = f"{ID}\0{parent}\0Ada\0ada@example.com\x001700000000\0one\n\nmore\n\0\n{parent}\0\0\0\x001\0\0\n"
    first, second = commits_from(output)
    assert (first.commit, first.parents, first.author, first.email) == (
        ID,
        [parent],
        "Ada",
        "ada@example.com",
    )
    assert (first.authored_at, first.message, second.parents, second.message) == (
        1700000000,
        "one\n\nmore",
        [],
        "",
    )
    assert commits_from("") == []
    for broken in ("x", f"{ID}\0\0\0\0x\0\0\n", "x\0\0\0\x001\0\0\n", f"{output}x"):
        with pytest.raises(AgentError):
            commits_from(broken)


def test_branches_are_read() -> None:
    main, work = branches_from(f"*\0refs/heads/main\0{ID}\0origin/main\n \0refs/heads/a/b\0{ID}\0\n")
    assert (main.name, main.current, main.upstream) == ("main", True, "origin/main")
    assert (work.name, work.current, work.upstream) == ("a/b", False, None)
    with pytest.raises(AgentError):
        branches_from("main\n")
    assert commit_from(f"{ID}\n") == ID
    with pytest.raises(AgentError):
        commit_from("HEAD")


@pytest.mark.parametrize("name", ["", "-b", "--upload-pack=x", "a b", "a\nb", "a\0b", 7])
def test_a_name_that_git_could_take_for_an_option_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError):
        check_ref("branch", name)


def test_an_address_with_a_password_is_refused() -> None:
    for url in ("https://me:token@example.com/a.git", "", "https://example.com/\na"):
        with pytest.raises(InvalidSpecError):
            check_url(url)
    for url in ("https://example.com/a.git", "git@example.com:a/b.git", "/srv/a", "https://me@example.com/a"):
        assert check_url(url) == url


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.com/tide/moon.git", "moon"),
        ("https://example.com/tide/moon/", "moon"),
        ("git@example.com:moon.git", "moon"),
        ("/srv/moon/.git", "moon"),
        ("moon", "moon"),
    ],
)
def test_a_clone_is_named_as_git_names_it(url: str, name: str) -> None:
    assert directory_of(url) == name
    for nameless in ("/", "https://example.com/..", "x/-rf"):
        with pytest.raises(InvalidSpecError):
            directory_of(nameless)


def test_paths_are_never_options() -> None:
    assert paths_of("-f") == ["--", "-f"]
    assert paths_of(["-f", "a b"]) == ["--", "-f", "a b"]
    assert paths_of(()) == ["--"]


def test_an_author_is_a_name_and_an_email() -> None:
    assert identity(None) == {}
    env = identity("Ada Lovelace <ada@example.com>")
    assert env["GIT_AUTHOR_NAME"] == env["GIT_COMMITTER_NAME"] == "Ada Lovelace"
    assert env["GIT_AUTHOR_EMAIL"] == env["GIT_COMMITTER_EMAIL"] == "ada@example.com"
    for author in ("Ada", "<ada@example.com>", "Ada <a b>", "A\nB <x@y>", ""):
        with pytest.raises(InvalidSpecError):
            identity(author)
