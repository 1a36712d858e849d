"""Runs inside a sandbox: what happens to names. Each check is named by what it shows."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

KINDS = ("f", "empty", "dir", "edir", "link", "dangling", "fifo", "h1", "sparse")
DIRECTORIES = ("dir", "edir")
WITH_MANY = (
    "nothing-has-changed",
    "names-are-removed-while-they-are-read",
    "names-change-while-they-are-read",
    "a-directory-of-many",
)


@contextlib.contextmanager
def refused(*wanted: str) -> Iterator[None]:
    """Expect one of these errors."""
    try:
        yield
    except OSError as error:
        got = errno.errorcode[error.errno or 0]
        assert got in wanted, f"{got} instead of {' or '.join(wanted)}"
    else:
        raise AssertionError(f"no error instead of {' or '.join(wanted)}")


def seen(path: str) -> tuple[int, int, int, object]:
    """What a file is, whatever its name."""
    info = os.lstat(path)
    content: object = None
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as file:
            content = file.read()
    elif stat.S_ISLNK(info.st_mode):
        content = os.readlink(path)
    elif stat.S_ISDIR(info.st_mode):
        content = sorted(os.listdir(path))
    return info.st_mode, info.st_uid, info.st_gid, content


def rename(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        before = seen(f"{d}/{kind}")
        os.rename(f"{d}/{kind}", f"{d}/new")
        assert seen(f"{d}/new") == before
        assert not os.path.lexists(f"{d}/{kind}")
        assert "new" in os.listdir(d) and kind not in os.listdir(d)
        os.rename(f"{d}/new", f"{d}/{kind}")
        assert seen(f"{d}/{kind}") == before

    return check


def rename_into(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        before = seen(f"{d}/{kind}")
        os.rename(f"{d}/{kind}", f"{d}/edir2/new")
        assert seen(f"{d}/edir2/new") == before
        os.rename(f"{d}/edir2", f"{d}/moved")
        assert seen(f"{d}/moved/new") == before
        assert not os.path.lexists(f"{d}/edir2")

    return check


def rename_over(kind: str, over: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        if kind in DIRECTORIES and over not in (*DIRECTORIES, "edir2"):
            with refused("ENOTDIR"):
                os.rename(f"{d}/{kind}", f"{d}/{over}")
        elif kind not in DIRECTORIES and over in ("dir", "edir2"):
            with refused("EISDIR"):
                os.rename(f"{d}/{kind}", f"{d}/{over}")
        elif over == "dir":
            with refused("ENOTEMPTY", "EEXIST"):
                os.rename(f"{d}/{kind}", f"{d}/{over}")
        else:
            before = seen(f"{d}/{kind}")
            os.rename(f"{d}/{kind}", f"{d}/{over}")
            assert seen(f"{d}/{over}") == before
            assert not os.path.lexists(f"{d}/{kind}")

    return check


def make_over(make: Callable[[str], object], kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        before = seen(f"{d}/{kind}")
        with refused("EEXIST"):
            make(f"{d}/{kind}")
        assert seen(f"{d}/{kind}") == before

    return check


def remove(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        if kind in DIRECTORIES:
            with refused("EISDIR", "EPERM"):
                os.unlink(f"{d}/{kind}")
        else:
            with refused("ENOTDIR"):
                os.rmdir(f"{d}/{kind}")
        if kind == "dir":
            with refused("ENOTEMPTY", "EEXIST"):
                os.rmdir(f"{d}/dir")
            for path in ("sub/y", "x", "h3"):
                os.unlink(f"{d}/dir/{path}")
            os.rmdir(f"{d}/dir/sub")
        (os.rmdir if kind in DIRECTORIES else os.unlink)(f"{d}/{kind}")
        assert not os.path.lexists(f"{d}/{kind}") and kind not in os.listdir(d)
        os.mkdir(f"{d}/{kind}")
        assert os.listdir(f"{d}/{kind}") == []  # nothing of an earlier directory shows through

    return check


def link(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        if kind in DIRECTORIES:
            with refused("EPERM"):
                os.link(f"{d}/{kind}", f"{d}/new")
            return
        count = os.lstat(f"{d}/{kind}").st_nlink
        os.link(f"{d}/{kind}", f"{d}/new", follow_symlinks=False)
        one, two = os.lstat(f"{d}/{kind}"), os.lstat(f"{d}/new")
        assert (one.st_ino, one.st_nlink) == (two.st_ino, two.st_nlink) and one.st_nlink == count + 1
        os.unlink(f"{d}/{kind}")
        assert os.lstat(f"{d}/new").st_nlink == count

    return check


def linked_write(through: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        with open(f"{d}/{through}", "ab") as file:
            file.write(b"+more")
        os.chmod(f"{d}/{through}", 0o640)
        for name in ("h1", "h2", "dir/h3"):
            assert seen(f"{d}/{name}")[0] & 0o777 == 0o640, name
            assert seen(f"{d}/{name}")[3] == b"linked+more", name
            assert os.stat(f"{d}/{name}").st_nlink == 3, name
        assert len({os.stat(f"{d}/{name}").st_ino for name in ("h1", "h2", "dir/h3")}) == 1
        os.unlink(f"{d}/{through}")
        others = {"h1", "h2", "dir/h3"} - {through}
        assert {os.stat(f"{d}/{name}").st_nlink for name in others} == {2}
        os.rename(f"{d}/{min(others)}", f"{d}/renamed")
        with open(f"{d}/renamed", "ab") as file:
            file.write(b"!")
        assert seen(f"{d}/{max(others)}")[3] == b"linked+more!"

    return check


def same_links(d: str) -> None:
    os.rename(f"{d}/h1", f"{d}/h2")  # two names of one file: nothing happens
    assert os.path.exists(f"{d}/h1") and os.path.exists(f"{d}/h2")


def into_itself(d: str) -> None:
    with refused("EINVAL"):
        os.rename(f"{d}/dir", f"{d}/dir/sub/new")


def swapped(d: str) -> None:
    os.rename(f"{d}/dir", f"{d}/t")
    os.rename(f"{d}/edir", f"{d}/dir")
    os.rename(f"{d}/t", f"{d}/edir")
    assert os.listdir(f"{d}/dir") == []
    assert sorted(os.listdir(f"{d}/edir")) == ["h3", "sub", "x"]
    os.rename(f"{d}/edir/sub", f"{d}/dir/sub")
    assert seen(f"{d}/dir/sub/y")[3] == b"y"
    with open(f"{d}/dir/sub/y", "ab") as file:
        file.write(b"!")
    assert seen(f"{d}/dir/sub/y")[3] == b"y!"


def chain_of_renames(d: str) -> None:
    at = f"{d}/dir"
    for number in range(12):
        os.rename(at, f"{d}/dir{number}")
        at = f"{d}/dir{number}"
        os.mkdir(f"{d}/parent{number}")
        os.rename(at, f"{d}/parent{number}/in")
        at = f"{d}/parent{number}/in"
    assert sorted(os.listdir(at)) == ["h3", "sub", "x"]
    assert seen(f"{at}/sub/y")[3] == b"y"


def directory_comes_back_empty(d: str) -> None:
    os.rename(f"{d}/dir", f"{d}/away")
    os.mkdir(f"{d}/dir")
    assert os.listdir(f"{d}/dir") == []
    os.rmdir(f"{d}/dir")
    assert not os.path.exists(f"{d}/dir") and os.path.exists(f"{d}/away/sub/y")


def sticky(name: str, allowed: bool) -> Callable[[str], None]:
    def check(d: str) -> None:
        os.setegid(1000)
        os.seteuid(1000)
        act: Callable[[str], None]
        for act in (lambda p: os.rename(p, f"{p}2"), lambda p: os.unlink(f"{p}2" if allowed else p)):
            if allowed:
                act(f"{d}/sticky/{name}")
            else:
                with refused("EPERM", "EACCES"):
                    act(f"{d}/sticky/{name}")

    return check


def reading_while_removing(d: str) -> None:
    names = set()
    with os.scandir(f"{d}/big") as entries:
        for entry in entries:
            names.add(entry.name)
            os.unlink(entry.path)
    assert names == {str(number) for number in range(64)}
    assert os.listdir(f"{d}/big") == []
    os.rmdir(f"{d}/big")


def reading_while_adding(d: str) -> None:
    with os.scandir(f"{d}/big") as entries:
        found = []
        for number, entry in enumerate(entries):
            found.append(entry.name)
            if number < 64:
                os.rename(f"{d}/big/{number}", f"{d}/big/moved{number}")
    assert len(os.listdir(f"{d}/big")) == 64
    assert len(found) == len(set(found)), "a name was told twice"


def many_names(d: str) -> None:
    for number in range(500):
        os.mkdir(f"{d}/big/d{number}")
    assert len(os.listdir(f"{d}/big")) == 564
    assert os.stat(f"{d}/big").st_nlink in (502, 1)


def long_name(d: str) -> None:
    os.rename(f"{d}/f", f"{d}/{'n' * 255}")
    with refused("ENAMETOOLONG"):
        os.rename(f"{d}/g", f"{d}/{'n' * 256}")
    odd = os.fsencode(d) + b"/\xff\x01 \n'\"\\"
    os.rename(f"{d}/g", odd)
    assert os.path.basename(odd) in os.listdir(os.fsencode(d))


def loops(d: str) -> None:
    with refused("ELOOP"):
        os.open(f"{d}/loop", os.O_RDONLY)
    with refused("ENOENT"):
        os.open(f"{d}/dangling", os.O_RDONLY)
    with refused("ELOOP"):
        os.open(f"{d}/link", os.O_RDONLY | os.O_NOFOLLOW)
    with refused("ENOTDIR"):
        os.stat(f"{d}/f/below")
    os.mkdir(f"{d}/nowhere")
    assert os.listdir(f"{d}/dangling") == []


NAME_CHECKS: dict[str, Callable[[str], None]] = {
    **{f"rename-{kind}": rename(kind) for kind in KINDS},
    **{f"rename-{kind}-into-a-directory-that-moves": rename_into(kind) for kind in KINDS},
    **{
        f"rename-{kind}-over-{over}": rename_over(kind, over)
        for kind in KINDS
        for over in ("g", "h2", "dir", "edir2", "link", "dangling", "fifo")
        if kind != over and (kind, over) != ("h1", "h2")
    },
    **{
        f"{what}-over-{kind}-is-refused": make_over(make, kind)
        for what, make in {
            "mkdir": os.mkdir,
            "mkfifo": os.mkfifo,
            "symlink": lambda path: os.symlink("x", path),
            "exclusive-open": lambda path: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
        }.items()
        for kind in KINDS
    },
    **{f"remove-{kind}-and-make-a-directory-of-its-name": remove(kind) for kind in KINDS},
    **{f"link-{kind}": link(kind) for kind in KINDS},
    **{
        f"write-through-{name.replace('/', '-')}-of-three-names": linked_write(name)
        for name in ("h1", "h2", "dir/h3")
    },
    "rename-one-name-of-a-file-to-another-of-it": same_links,
    "rename-a-directory-into-itself-is-refused": into_itself,
    "directories-swap-names": swapped,
    "a-directory-is-renamed-over-and-over": chain_of_renames,
    "a-directory-of-a-renamed-ones-name-is-empty": directory_comes_back_empty,
    "sticky-keeps-others-files": sticky("roots", False),
    "sticky-leaves-own-files-alone": sticky("users", True),
    "names-are-removed-while-they-are-read": reading_while_removing,
    "names-change-while-they-are-read": reading_while_adding,
    "a-directory-of-many": many_names,
    "long-and-odd-names": long_name,
    "symlinks-that-lead-nowhere": loops,
}
