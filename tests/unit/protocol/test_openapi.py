from __future__ import annotations

from atoll.protocol import ErrorBody
from atoll.protocol.openapi import Operation, api_document, api_page
from atoll.types import TeamInfo

OPERATIONS = [
    Operation("get", "/v1/teams/{team}", "look at <a> team", result=TeamInfo, query=("at",)),
    Operation("put", "/v1/teams/{team}", "change a team", body=TeamInfo),
    Operation("post", "/v1/teams", "make a team", body=TeamInfo, result=TeamInfo, status=201),
]


def test_a_document_has_each_operation_with_its_parameters_and_answers() -> None:
    document = api_document("atoll", "1", OPERATIONS, ErrorBody)
    assert document["info"] == {"title": "atoll", "version": "1"}
    assert {path: sorted(methods) for path, methods in document["paths"].items()} == {
        "/v1/teams/{team}": ["get", "put"],
        "/v1/teams": ["post"],
    }
    got = document["paths"]["/v1/teams/{team}"]["get"]
    assert [(each["name"], each["in"], each["required"]) for each in got["parameters"]] == [
        ("team", "path", True),
        ("at", "query", False),
    ]
    assert sorted(got["responses"]) == ["200", "default"]
    assert sorted(document["paths"]["/v1/teams/{team}"]["put"]["responses"]) == ["204", "default"]
    posted = document["paths"]["/v1/teams"]["post"]
    assert sorted(posted["responses"]) == ["201", "default"]
    reference = {"$ref": "#/components/schemas/TeamInfo"}
    assert posted["requestBody"]["content"]["application/json"]["schema"] == reference
    assert {"TeamInfo", "ErrorBody"} <= document["components"]["schemas"].keys()


def test_a_page_shows_text_as_text() -> None:
    page = api_page("atoll", "1", OPERATIONS)
    assert "look at &lt;a&gt; team" in page
    assert "<code>POST</code></td><td><code>/v1/teams</code>" in page
    assert page.count("<tr><td>") == len(OPERATIONS)
