from pathlib import Path

import pytest

from atoll.cli.__main__ import run


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    return tmp_path


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["template", "build", *arguments]) == 125
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Errno" not in said
    return said


def test_a_missing_file_is_named_with_what_to_give(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(["-f", "D9", "sub"], capsys)
    assert said.startswith("atoll: there is no Dockerfile D9 (-f takes the path of a Dockerfile")


def test_a_file_of_the_context_is_named_with_its_path(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "sub/D9").write_text("FROM base\n")
    assert f"(give -f {directory}/sub/D9: " in told(["-f", "D9", "sub"], capsys)


def test_a_directory_without_a_dockerfile_is_named(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(["sub"], capsys)
    assert f"there is no Dockerfile {directory}/sub/Dockerfile (name another file with -f" in said


def test_a_copy_of_what_is_not_there_is_told_with_its_line_before_anything_is_built(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "sub/Dockerfile").write_text("FROM base\n\nCOPY gone.txt /\n")
    said = told(["sub"], capsys)
    assert (
        f"line 3 of the Dockerfile, `COPY gone.txt /`: 'gone.txt' matches no file of the context {directory}"
        in said
    )
