"""The definition of the code interpreter's template."""

import pytest

from atoll.errors import InvalidSpecError
from atoll.toolkits import SHIPPED
from atoll.toolkits.code import LANGUAGES, spec


def test_a_language_is_one_more_step_and_is_installed_before_the_server() -> None:
    plain, with_r = spec().steps, spec(languages=["r", "r"]).steps
    assert [step for step in with_r if step not in plain] == [with_r[1]]
    assert (with_r[0], with_r[2:]) == (plain[0], plain[1:])
    assert len(spec(languages=LANGUAGES).steps) == len(plain) + 2


def test_a_language_that_it_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="give r or java"):
        spec(languages=["cobol"])


def test_only_the_code_interpreter_has_languages_to_add() -> None:
    assert SHIPPED["code-interpreter-v1"].spec(["r"]).steps
    assert SHIPPED["developer"].spec([]).steps
    with pytest.raises(InvalidSpecError, match="no language to add"):
        SHIPPED["developer"].spec(["r"])
