"""What a build makes of Dockerfiles, contexts and archives before anything runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll import Templates
from atoll.errors import InvalidSpecError
from atoll.sdk._context import Context, matched, pattern_of
from atoll.sdk._dockerfile import Dockerfile
from atoll.sdk._lines import LONGEST_LINE, Lines
from atoll.sdk._placing import Placing
from atoll.sdk._steps import check_env, expanded, failed, keys, points, usable
from atoll.types import CopyStep, EnvStep, ExecResult, RunStep, Step, TemplateSpec, UserStep, WorkdirStep


def tarred(*entries: tuple[str, Any]) -> bytes:
    """A tar of files (bytes), directories (None) and symbolic links (str)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def placed(
    source: str, target: str, data: bytes, *, into: bool = False, size: int = 700
) -> tuple[str, list[str]]:
    """Where an archive's files go: the root, and the names below it."""
    pieces: Iterator[bytes] = (data[start : start + size] for start in range(0, len(data), size))
    placing = Placing(source, target, into=into, pieces=pieces)
    whole = b"".join(placing.placed())
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        return placing.root, tar.getnames()


def test_an_archive_that_nobody_waits_for_is_not_read_on() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        info = tarfile.TarInfo("other")
        info.size = 1 << 50
        yield info.tobuf(tarfile.GNU_FORMAT)
        while True:
            read += 1
            yield bytes(1 << 16)

    def going_on() -> None:
        if read == 10:
            raise TimeoutError

    placing = Placing("wanted", "/app", into=False, pieces=endless(), going_on=going_on)
    with pytest.raises(TimeoutError):
        next(placing.placed())
    assert read == 10


TREE = tarred(
    ("src", None), ("src/a.py", b"a" * 1000), ("src/deep/b.py", b""), ("src/link", "a.py"), ("c.txt", b"c")
)


@pytest.mark.parametrize(
    "source, target, into, root, names",
    [
        ("src", "/app", False, "/app", ["a.py", "deep/b.py", "link"]),
        ("./src/", "/app", True, "/app", ["a.py", "deep/b.py", "link"]),
        ("c.txt", "/app/d.txt", False, "/app", ["d.txt"]),
        ("c.txt", "/app", True, "/app", ["c.txt"]),
        (".", "/app", False, "/app", ["src", "src/a.py", "src/deep/b.py", "src/link", "c.txt"]),
        ("src/*.py", "/app", False, "/app", ["a.py"]),
        ("**/*.py", "/app", False, "/app", ["a.py", "b.py"]),
        ("../../src/deep", "/app", False, "/app", ["b.py"]),
    ],
)
def test_a_directory_gives_its_content_and_a_file_itself(
    source: str, target: str, into: bool, root: str, names: list[str]
) -> None:
    for size in (7, 512, 100_000):
        assert placed(source, target, TREE, into=into, size=size) == (root, names)


@pytest.mark.parametrize(
    "data, why",
    [
        (tarred(("../evil", b"x")), "leads out"),
        (tarred(("/etc/passwd", b"x")), "leads out"),
        (tarred(("a/../../evil", b"x")), "leads out"),
        (tarred(("other", b"x")), "matches no file"),
        (b"nonsense" * 200, "is not a tar"),
        (TREE[:600], "is truncated"),
        (b"", "is truncated"),
    ],
)
def test_an_archive_that_is_not_what_it_must_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidSpecError, match=why):
        placed("src", "/app", data)


def test_a_path_matches_part_by_part() -> None:
    assert matched(["a", "b"], pattern_of("a")) == 1
    assert matched(["a", "b"], pattern_of("*/b")) == 2
    assert matched(["x", "y", "b.py", "z"], pattern_of("**/*.py")) == 3
    assert matched(["a", "b", "a", "c", "a"], pattern_of("**/a/**/c")) == 4
    assert matched(["a", "b"], pattern_of("a/**")) == 1
    assert matched(["a"], pattern_of("a/b")) is None
    assert matched(["ab"], pattern_of("a")) is None
    assert pattern_of("/../../a/./b/") == ("a", "b")


def test_no_variables_that_stand_for_each_other_become_all_of_the_memory() -> None:
    env = {"A": "x"}
    with pytest.raises(InvalidSpecError, match="would be longer than"):
        for _ in range(40):
            env["A"] = expanded("$A$A", env)
    with pytest.raises(InvalidSpecError, match="too many"):
        check_env({str(number): env["A"] for number in range(20)})


def test_no_pattern_and_no_name_takes_long_to_compare() -> None:
    assert matched(["a"] * 2000, pattern_of("**/" * 60 + "z")) is None
    for source in ("a/" * 65, "a" * 4097):
        with pytest.raises(InvalidSpecError, match="too long"):
            pattern_of(source)
    with pytest.raises(InvalidSpecError, match="too long"):
        placed("src", "/app", tarred(("a/" * 5000, b"x")))


def test_a_context_leaves_out_what_is_ignored_and_knows_when_files_change(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/kept").write_text("1")
    (tmp_path / "d/secret.env").write_text("x")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / ".dockerignore").write_text("**/*.env\n")
    before = Context(tmp_path).digest(["d"], None)
    with tarfile.open(fileobj=io.BytesIO(b"".join(Context(tmp_path).pieces(".", None)))) as tar:
        names = tar.getnames()
    assert names == [".dockerignore", "d", "d/kept", "out"]
    assert Context(tmp_path).digest(["d"], None) == before
    (tmp_path / "d/kept").write_text("2")
    assert Context(tmp_path).digest(["d"], None) != before
    with pytest.raises(InvalidSpecError, match="matches no file"):
        Context(tmp_path).digest(["out/passwd"], None)
    with pytest.raises(InvalidSpecError, match="no context directory to copy from"):
        Context(None).digest(["d"], None)


def test_an_ignore_file_beside_the_dockerfile_stands_for_that_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".dockerignore").write_text("a\n")
    (tmp_path / "sub/Dockerfile").write_text("FROM x\nCOPY . /\n")

    def names() -> list[str]:
        spec = Templates.from_dockerfile(tmp_path / "sub/Dockerfile").spec()
        context = Context(tmp_path, ignore=spec.ignore)
        with tarfile.open(fileobj=io.BytesIO(b"".join(context.pieces(".", None)))) as tar:
            return tar.getnames()

    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    assert names() == [".dockerignore", "b", "sub", "sub/Dockerfile"]
    (tmp_path / "sub/Dockerfile.dockerignore").write_text("# mine\nb\nsub\n")
    assert names() == [".dockerignore", "a"]
    with pytest.raises(InvalidSpecError, match="pattern of files to leave out"):
        Context(tmp_path, ignore=["[a"]).digest(["."], None)


def test_a_context_is_uploaded_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    (tmp_path / "c.tar").write_bytes(b"archive")
    context = Context(tmp_path, {"given": tmp_path / "c.tar"})
    name = context.upload_name(["a", "a", "b"], None)
    assert len(name) == 64
    sent = tmp_path / "sent"
    sent.write_bytes(b"".join(context.upload(["a", "a", "b"], None)))
    with tarfile.open(sent) as tar:
        assert sorted(tar.getnames()) == ["a", "b"]
    assert b"".join(context.upload(["x"], "given")) == b"archive"
    assert context.upload_name(["x"], "given") == hashlib.sha256(b"archive").hexdigest()
    (tmp_path / "b").write_text("other")
    assert Context(tmp_path).upload_name(["a", "a", "b"], None) != name
    for asked in (context.upload_name, context.upload):
        with pytest.raises(InvalidSpecError, match="no archive"):
            asked(["x"], "missing")
        with pytest.raises(InvalidSpecError, match="matches no file"):
            asked(["missing"], None)


def test_a_zipped_archive_comes_in_small_pieces_however_much_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(32 << 20)))
    (tmp_path / "broken").write_bytes(b"\x1f\x8bnonsense")
    context = Context(None, {"bomb": tmp_path / "bomb", "broken": tmp_path / "broken"})
    sizes = [len(piece) for piece in context.pieces("x", "bomb")]
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= 1 << 20
    with pytest.raises(InvalidSpecError, match="not gzip"):
        list(context.pieces("x", "broken"))
    with pytest.raises(InvalidSpecError, match="no archive"):
        context.pieces("x", "missing")


def test_variables_have_their_values() -> None:
    env = {"A": "1", "EMPTY": ""}
    assert expanded("$A ${A} ${B:-x} ${A:+y}${B:+z} ${EMPTY:-e} \\$A $B.", env) == "1 1 x y e $A ."


def test_a_key_changes_with_all_that_led_to_it() -> None:
    steps: list[Step] = [EnvStep(env={"A": "1"}), CopyStep(sources=["a"], target="/"), RunStep(command="x")]
    spec = TemplateSpec(steps=steps, start_command="s")
    first = keys(spec, "base", "team", {1: "digest"})
    assert len(first) == 4
    assert keys(spec, "base", "team", {1: "other"})[0] == first[0]
    assert not set(keys(spec, "base", "team", {1: "other"})[1:]) & set(first)
    assert not set(keys(spec, "base", "others", {1: "digest"})) & set(first)
    assert not set(keys(spec, "newer", "team", {1: "digest"})) & set(first)
    again = TemplateSpec(steps=[*steps[:2], RunStep(command="x", force=True)])
    assert keys(again, "base", "team", {1: "digest"})[:3] == first[:3]
    assert (usable(spec), usable(again)) == (4, 2)


def test_snapshots_are_kept_after_what_ran_and_after_the_last_of_several_copies() -> None:
    copy, run, env = CopyStep(sources=["a"], target="/"), RunStep(command="x"), EnvStep(env={})
    assert points([env, copy, copy, env, copy, run, run, copy, env]) == [4, 5, 6, 7]


DOCKERFILE = """# syntax=docker/dockerfile:1
ARG VERSION=3.12
FROM --platform=linux/amd64 python:${VERSION}-slim AS app
ARG WHO=ann
ENV NAME="$WHO b" KEPT=$PATH
RUN apt-get update && \\
    apt-get install -y git
RUN ["/bin/true", "a b"]
RUN cat <<-END > /etc/motd
	hello
	END
RUN <<EOF
#!/usr/bin/env python3
print("x")
EOF
COPY --chown=app:staff --chmod=755 *.py "with space" /srv/
ADD local.txt .
WORKDIR /srv
USER app
EXPOSE 80
LABEL a=b
ENTRYPOINT ["python3", "-m"]
CMD ["http.server", "8000"]
"""


def test_a_dockerfile_becomes_steps() -> None:
    parsed = Dockerfile(DOCKERFILE, {"VERSION": "3.13"})
    spec = parsed.spec(ready_command="true")
    runs = [step.command for step in spec.steps if isinstance(step, RunStep)]
    assert (spec.image, spec.start_command) == ("python:3.13-slim", "python3 -m http.server 8000")
    assert runs[0] == "export WHO=ann\napt-get update &&     apt-get install -y git"
    assert runs[1] == ["/bin/true", "a b"]
    assert runs[2] == "export WHO=ann\ncat <<-END > /etc/motd\nhello\nEND\n"
    assert str(runs[3]).startswith("export WHO=ann\n/usr/bin/env python3 /dev/stdin <<'")
    others = [step for step in spec.steps if not isinstance(step, RunStep)]
    assert others == [
        EnvStep(env={"NAME": "ann b", "KEPT": "${PATH}"}),
        CopyStep(sources=["*.py", "with space"], target="/srv/", user="app:staff", mode=0o755),
        CopyStep(sources=["local.txt"], target=".", user="root"),
        WorkdirStep(path="/srv"),
        UserStep(user="app"),
    ]
    assert [note.partition(":")[0] for note in parsed.notes] == ["line 3", "line 20", "line 21"]


@pytest.mark.parametrize(
    "text, why",
    [
        ("RUN x", "RUN comes before FROM"),
        ("", "no FROM|empty|no instructions"),
        ("FROM scratch", "scratch"),
        ("FROM $MISSING", "line 1.*has no value"),
        ("FROM a AS", "may name the stage"),
        ("FROM a AS b\nFROM c AS b", "line 2.*something else already"),
        ("FROM a\nCOPY --from=b x /x\nFROM c AS b", "line 3.*something else already"),
        ("FROM a AS b\nCOPY --from=b x y", "line 2.*not an earlier stage"),
        ("FROM a\nCOPY --from=0 x y", "line 2.*not an earlier stage"),
        ("FROM a\nCOPY --from=7 x y", "not an earlier stage"),
        ("FROM a\nADD --from=b x y", "ADD --from is not supported"),
        ("FROM a\nRUN --mount=type=bind,target=/x y", "not supported"),
        ("FROM a\nENV A='x", "line 2.*matching single-quote"),
        ("FROM a\nENV A=${PATH#/usr}", "line 2.*only for an ARG"),
        ("FROM a AS b\nONBUILD x\nFROM c\nCOPY --from=b x y", "line 2.*ONBUILD is not supported"),
        ("FROM a AS b\nONBUILD x\nFROM b", "line 2.*ONBUILD is not supported"),
        ("FROM a\nADD https://example.com/x /x", "not supported"),
        ("FROM a\nADD x.tar.gz /x", "does not unpack"),
        ("FROM a\nCOPY x", "takes sources and a target|at least two"),
        ("FROM a\nONBUILD RUN x", "not supported"),
        ("FROM a\nJUMP x", "not supported|unknown"),
    ],
)
def test_what_a_template_cannot_be_is_refused_clearly(text: str, why: str) -> None:
    with pytest.raises(InvalidSpecError, match=why):
        Dockerfile(text)


def test_lines_are_whole_and_bounded() -> None:
    lines = Lines()
    feed = lines.of("info")
    assert feed("one\ntw") == ["one"]
    assert feed("o\nprogress 1%\rprogress 2%\n") == ["two", "progress 2%"]
    assert [len(line) for line in feed("x" * 100_000 + "\n")] == [LONGEST_LINE]
    for _ in range(100):
        assert feed("y" * 1000) == []
    assert [(level, len(line)) for level, line in lines.rest()] == [("info", LONGEST_LINE)]


def test_a_failed_step_is_told_with_what_it_said_if_anything() -> None:
    assert str(failed("RUN x", ExecResult(exit_code=3))) == "RUN x ended with exit code 3"
    said = ExecResult(exit_code=3, stdout_bytes=b"on the way\n", stderr_bytes=b"bad\n")
    assert str(failed("RUN x", said)) == "RUN x ended with exit code 3: bad"


def test_a_dockerfile_that_is_missing_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    missing = tmp_path / "D9"
    with pytest.raises(InvalidSpecError, match="there is no Dockerfile .*/D9") as raised:
        Templates.from_dockerfile(missing)
    assert "`atoll docs templates` shows one" in str(raised.value.hint)
    for name in ("Dockerfile.dev", "Dockerfile.dev.dockerignore"):
        (tmp_path / name).write_text("FROM base\n")
    with pytest.raises(InvalidSpecError) as raised:
        Templates.from_dockerfile(missing)
    assert raised.value.hint == f"{tmp_path} has Dockerfile.dev"


def test_a_path_that_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="cannot be read: Is a directory"):
        Templates.from_dockerfile(tmp_path)
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InvalidSpecError, match="longer than a Dockerfile may be"):
        Templates.from_dockerfile(tmp_path / "large")
    with pytest.raises(InvalidSpecError, match="'Dockerfile' is not the content") as raised:
        Templates.from_dockerfile("Dockerfile")
    assert raised.value.hint == "give the path of a file as a Path, not as a str"
