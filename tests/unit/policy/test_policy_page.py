from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from atoll.policy import check_policy, policy_from_json, policy_from_toml
from atoll.types import HOST_NAME, Policy
from tests.unit.policy.reference import Judge

PAGE = (Path(__file__).parents[3] / "docs/reference/policy.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_example_is_the_same_policy_in_toml_json_and_python() -> None:
    policy = run(blocks("python")[0])["policy"]
    assert policy_from_toml(blocks("toml")[0]) == policy
    assert policy_from_json(blocks("json")[0]) == policy


def test_the_example_does_what_the_page_says() -> None:
    judge = Judge(policy_from_toml(blocks("toml")[0]))
    assert judge.connection(None, "169.254.169.254", 80).action == "unplug"
    assert judge.connection("packages.example", "8.8.8.8", 443).kept == (1,)
    assert judge.connection("git.example", "8.8.8.8", 443).kept == (2,)
    assert judge.connection("git.example", "8.8.8.8", 22).action == "deny"


def test_the_short_forms_are_valid() -> None:
    names = run(blocks("python")[1])
    policy: Policy = names["with_a_database"]
    check_policy(policy)
    assert Judge(policy).connection(HOST_NAME, "127.0.0.1", 5432).action == "allow"
    assert Judge(policy).connection("a.example.org", "8.8.8.8", 443).action == "allow"
