import pytest

from atoll.errors import InvalidSpecError
from atoll.tools import TOOL_CLASSES, Picture, ToolResult
from atoll.tools.schema import checked, description_of, schema_of

COMMANDS, FILES, _, SERVICES, SNAPSHOTS = TOOL_CLASSES
METHODS = [getattr(kind, offer.name) for kind in TOOL_CLASSES for offer in kind.OFFERS]


def test_every_tool_and_every_argument_is_described() -> None:
    for method in METHODS:
        assert description_of(method).endswith(".")
        schema = schema_of(method)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert all(each["description"] for each in schema["properties"].values()), method
        assert all("type" in each or "anyOf" in each for each in schema["properties"].values()), method


def test_arguments_get_their_defaults() -> None:
    found = checked(COMMANDS.run, '{"command": "ls", "timeout_s": "5"}')
    assert found == {"command": "ls", "cwd": None, "stdin": None, "timeout_s": 5.0}
    assert checked(SNAPSHOTS.snapshots, "") == {}


@pytest.mark.parametrize(
    "arguments",
    ['{"command": ""}', "{}", "[]", "{", '{"command": "ls", "cmd": 1}', '{"command": "ls", "timeout_s": 0}'],
)
def test_arguments_that_do_not_fit_are_refused_with_the_names_that_do(arguments: str) -> None:
    with pytest.raises(InvalidSpecError, match="command, cwd, stdin, timeout_s"):
        checked(COMMANDS.run, arguments)


def test_a_default_that_is_a_list_is_a_new_one_each_time() -> None:
    first = checked(FILES.search_files, {"pattern": "a"})["glob"]
    assert first == []
    assert checked(FILES.search_files, {"pattern": "a"})["glob"] is not first


def test_a_picture_has_the_shape_that_each_api_takes() -> None:
    result = ToolResult("shown", (Picture(b"abc", "png"),))
    assert result.as_anthropic() == [
        {"type": "text", "text": "shown"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
    ]
    assert result.as_openai() == [
        {"type": "input_text", "text": "shown"},
        {"type": "input_image", "image_url": "data:image/png;base64,YWJj"},
    ]
    assert ToolResult("only text").as_openai() == "only text"
