import pytest

from atoll.errors import CodeFailedError
from atoll.types import CodeException, CodeOutput, CodeResult

MAIN = CodeOutput(text="42", is_main=True)


def test_the_text_of_a_result_is_that_of_its_main_output() -> None:
    assert CodeResult(outputs=[CodeOutput(text="shown"), MAIN]).text == "42"
    assert CodeResult(outputs=[CodeOutput(text="shown")]).text is None


def test_check_returns_what_raised_nothing_and_raises_otherwise() -> None:
    good = CodeResult(outputs=[MAIN])
    assert good.check() is good
    bad = CodeResult(error=CodeException(name="ValueError", value="no"))
    with pytest.raises(CodeFailedError, match="ValueError: no") as caught:
        bad.check()
    assert caught.value.result is bad


def test_a_picture_is_given_as_bytes() -> None:
    assert CodeOutput(png="aGk=").png_bytes == b"hi"
    assert CodeOutput().png_bytes == b""


def test_long_results_are_short_when_they_are_printed() -> None:
    output = CodeOutput(text="x" * 10_000, png="y" * 10_000)
    result = CodeResult(outputs=[output], stdout="z" * 10_000, error=CodeException(name="E", value="v"))
    assert "forms=['png']" in repr(output)
    assert len(repr(output)) < 400
    assert len(repr(result)) < 1000
