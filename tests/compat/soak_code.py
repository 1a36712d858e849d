"""What the templates that atoll ships have. `make soak` runs it: they take packages of more than a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox, Template
from atoll.errors import InvalidSpecError
from atoll.toolkits import install
from atoll.toolkits.code import LANGUAGES, LIBRARIES, NAME

pytestmark = pytest.mark.timeout(1800)
LONG_S = 240.0


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    del module_home
    install(NAME, languages=LANGUAGES)
    with Sandbox.create(Template(NAME), env={"GREETING": "hello"}) as sandbox:
        yield sandbox


# the names of modules that are not those of their packages
MODULES = {
    "beautifulsoup4": "bs4",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "python-docx": "docx",
    "python-pptx": "pptx",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}


def test_all_libraries_can_be_imported_together(sandbox: Sandbox) -> None:
    wanted = ["numpy", "pandas", "matplotlib", *(MODULES.get(name, name) for name in LIBRARIES)]
    for name in wanted:
        sandbox.code.run(f"import {name}", timeout_s=LONG_S).check()
    sandbox.code.run(
        "import cv2, numpy; cv2.imencode('.png', numpy.zeros((2, 2, 3)))", timeout_s=LONG_S
    ).check()
    compiled = "from numba import njit\n@njit\ndef f(x): return x + 1\nf(41)"
    assert sandbox.code.run(compiled, timeout_s=LONG_S).check().text == "42"


def test_the_template_for_developers_has_their_programs(module_home: Path) -> None:
    del module_home
    install("developer")
    with Sandbox.create(Template("developer")) as sandbox:
        for program in ("node", "npm", "gh", "gcc", "g++", "make", "wget", "jq"):
            sandbox.exec([program, "--version"]).check()
        sandbox.run("echo 'int main(void) { return 0; }' >a.c && gcc a.c && ./a.out").check()


def test_r_gives_values_pictures_and_errors_and_its_variables_sleep(sandbox: Sandbox) -> None:
    assert sandbox.code.run("x <- 1:10; mean(x)", language="r", timeout_s=LONG_S).check().text == "[1] 5.5"
    sandbox.suspend()
    failed = sandbox.code.run("cat(sum(x)); stop('no')", language="r", timeout_s=LONG_S)
    assert failed.stdout == "55"
    assert failed.error is not None
    assert "no" in failed.error.value
    [plot] = sandbox.code.run("plot(x)", language="r", timeout_s=LONG_S).check().outputs
    assert plot.png or plot.svg
    asked = "cat(Sys.getenv('GREETING'), Sys.getenv('ONLY'))"
    assert (
        sandbox.code.run(asked, language="r", env={"ONLY": "a'\"\n"}, timeout_s=LONG_S).stdout
        == "hello a'\"\n"
    )
    assert sandbox.code.run(asked, language="r", timeout_s=LONG_S).stdout == "hello "


def test_java_keeps_its_variables_and_tells_exceptions(sandbox: Sandbox) -> None:
    assert sandbox.code.run("int x = 41; x + 1", language="java", timeout_s=LONG_S).check().text == "42"
    failed = sandbox.code.run(
        'System.out.println(x); throw new RuntimeException("no");', language="java", timeout_s=LONG_S
    )
    assert failed.stdout == "41\n"
    assert failed.error is not None
    assert failed.error.name == "RuntimeException"
    asked = 'System.out.println(System.getProperty("GREETING") + System.getProperty("ONLY"));'
    given = sandbox.code.run(asked, language="java", env={"ONLY": "'\\u0041\""}, timeout_s=LONG_S)
    assert given.stdout == "hello'\\u0041\"\n"
    assert sandbox.code.run(asked, language="java", timeout_s=LONG_S).stdout == "hellonull\n"


def test_a_language_that_the_template_cannot_have_is_refused_before_anything_is_built() -> None:
    with pytest.raises(InvalidSpecError, match="give r or java"):
        install(NAME, languages=["cobol"])
