from __future__ import annotations

import json
import tomllib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.errors import InvalidSpecError
from atoll.policy import policy_from_json, policy_from_text, policy_from_toml, schema, to_toml
from atoll.types import Inject, Mcp, Policy, RateLimit, Rule, UpstreamProxy
from tests.unit.policy.policies import POLICIES, RANGES, rules, valid

RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=200)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
MAPS = st.dictionaries(TEXT, TEXTS, max_size=2)
COUNTS = st.none() | st.integers(1, 10**15)
FULL_RULES = st.builds(
    Rule,
    name=TEXT,
    hosts=TEXTS,
    paths=TEXTS,
    ports=st.lists(st.integers(1, 65535) | st.just("1-2"), max_size=2).map(tuple),
    query=MAPS,
    headers=MAPS,
    json=MAPS,
    max_body_bytes=COUNTS,
    mcp=st.none() | st.builds(Mcp, methods=TEXTS, tools=TEXTS, arguments=MAPS),
    set_headers=st.dictionaries(TEXT, TEXT, max_size=2),
    inject=st.lists(st.builds(Inject, secret=TEXT, key=TEXT, format=TEXT), max_size=2).map(tuple),
    limit=st.none() | st.builds(RateLimit, requests=COUNTS, per_s=st.floats(1e-9, 1e15), total_bytes=COUNTS),
)
FULL = st.builds(
    Policy,
    rules=st.lists(FULL_RULES, max_size=3).map(tuple),
    mode=st.sampled_from(["enforce", "observe"]),
    passthrough=TEXTS,
    proxy=st.none() | st.builds(UpstreamProxy, url=TEXT, hosts=TEXTS),
)

EXAMPLE = """\
# what our agent may reach
mode = "observe"
passthrough = ["pinned.example"]

[proxy]
url = "http://proxy:3128"

[[rules]]
name = "read packages"
hosts = ["packages.example", "*.files.example"]
methods = ["GET", "HEAD"]

  [[ rules ]]   # anything that is not web
hosts = ["git.example"]
ports = [22, "8000-8100"]
limit = { requests = 10, per_s = 1.5 }
"""


@RANDOM
@given(FULL)
def test_a_policy_is_the_same_after_toml_whatever_its_texts(policy: Policy) -> None:
    assert msgspec.convert(tomllib.loads(to_toml(policy)), Policy) == policy


@RANDOM
@given(FULL)
def test_a_policy_is_the_same_after_json_whatever_its_texts(policy: Policy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


@RANDOM
@given(
    POLICIES.filter(valid)
    | st.builds(Policy, rules=st.lists(rules(RANGES), max_size=1).map(tuple)).filter(valid)
)
def test_a_valid_policy_is_read_back_from_either_text(policy: Policy) -> None:
    assert policy_from_toml(to_toml(policy)) == policy
    assert policy_from_json(msgspec.json.encode(policy)) == policy
    assert policy_from_json(msgspec.json.encode(policy).decode()) == policy


def test_toml_is_written_as_a_person_would() -> None:
    policy = policy_from_toml(EXAMPLE)
    assert to_toml(policy) == (
        'mode = "observe"\npassthrough = ["pinned.example"]\n\n'
        '[proxy]\nurl = "http://proxy:3128"\n\n'
        '[[rules]]\nname = "read packages"\nhosts = ["packages.example", "*.files.example"]\n'
        'methods = ["GET", "HEAD"]\n\n'
        '[[rules]]\nhosts = ["git.example"]\nports = [22, "8000-8100"]\n'
        "limit = { requests = 10, per_s = 1.5 }\n"
    )
    assert to_toml(Policy()) == ""
    assert policy_from_toml("") == Policy()


def test_a_long_list_is_written_line_by_line() -> None:
    policy = Policy(rules=(Rule(hosts=tuple(f"host{at}.example.com" for at in range(20))),))
    assert '\n  "host7.example.com",\n' in to_toml(policy)
    assert policy_from_toml(to_toml(policy)) == policy


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'hosts = ["git',
            'host = ["git',
            "line 13: rule 2: Object contains unknown field `host` - at `$.rules[1]`",
        ),
        ("methods =", "method =", "line 8: rule 1: Object contains unknown field `method` - at `$.rules[0]`"),
        ("[22,", "[22.5,", "line 13: rule 2: Expected `int | str`, got `float` - at `$.rules[1].ports[0]`"),
        ("requests = 10", "request = 10", "line 13: rule 2: Object contains unknown field `request` - at"),
        ('"GET"', '"get"', "line 8: rule 1 (read packages): 'get' is no HTTP method"),
        ("[22,", "[0,", "line 13: rule 2: 0 is not a port or a range of ports"),
        ('["git.example"]', '["packages.example"]\nmethods = ["GET"]\nports = [80]#', None),
        ("mode =", "modus =", "Object contains unknown field `modus`"),
        ('"observe"', '"watch"', "Invalid enum value 'watch' - at `$.mode`"),
        ("proxy:3128", "proxy", "the proxy's address is invalid: it is no URL of a proxy"),
        (
            "[proxy]",
            "[proxy",
            "the policy is no TOML: Expected ']' at the end of a table declaration (at line 5",
        ),
    ],
)
def test_a_fault_in_toml_is_told_with_the_line_of_its_rule(old: str, new: str, told: str | None) -> None:
    text = EXAMPLE.replace(old, new, 1)
    assert text != EXAMPLE
    if told is None:
        policy_from_toml(text.replace('ports = [22, "8000-8100"]\n', ""))
        return
    with pytest.raises(InvalidSpecError) as raised:
        policy_from_toml(text)
    assert raised.value.message.startswith(told)


def test_a_rule_that_can_never_match_is_told_with_its_line() -> None:
    text = '[[rules]]\nhosts = ["*"]\n\n[[rules]]\nhosts = ["a.example"]\n'
    with pytest.raises(InvalidSpecError, match=r"^line 4: rule 2 can never match: rule 1 decides before it"):
        policy_from_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        'rules = [{ hosts = ["a b"] }]',
        '[[rules]]\nname = """\n[[rules]]\n"""\nhosts = ["a b"]',
        '[["rules"]]\nx=1',
    ],
)
def test_a_rule_whose_line_is_not_sure_is_told_by_its_number(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^(line 1: )?rule 1\b"):
        policy_from_toml(text)


@pytest.mark.parametrize(
    "text", ["[", "a = 1\na = 2", "x = " + "[" * 5000, "\0", "rules = 1", "rules = {}", "[rules]"]
)
def test_a_text_that_is_no_policy_in_toml_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError):
        policy_from_toml(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the policy is no JSON: "),
        ("{", "the policy is no JSON: "),
        ("[" * 100_000, "the policy is no JSON: "),
        (b"\xff\xfe\xfa", "the policy is no JSON: "),
        ("[]", "Expected `object`, got `array`"),
        ('{"rule": []}', "Object contains unknown field `rule`"),
        (
            '{"rules": [{}, {"hosts": "a.example"}]}',
            "rule 2: Expected `array`, got `str` - at `$.rules[1].hosts`",
        ),
        (
            '{"rules": [{"ports": [true]}]}',
            "rule 1: Expected `int | str`, got `bool` - at `$.rules[0].ports[0]`",
        ),
        ('{"rules": [{"action": "permit"}]}', "rule 1: Invalid enum value 'permit' - at `$.rules[0].action`"),
        (
            '{"rules": [{"action": "deny", "action": "allow"}]}',
            "the policy is no JSON: the key 'action' is there twice",
        ),
        ('{"rules": [{"limit": {"per_s": NaN}}]}', "rule 1: per_s is nan"),
        ('{"rules": [{"ports": [0]}]}', "rule 1: 0 is not a port or a range of ports"),
        (
            '{"rules": [{"mcp": {"tool": []}}]}',
            "rule 1: Object contains unknown field `tool` - at `$.rules[0].mcp`",
        ),
        ('{"proxy": {"url": "http://p:1", "x": 1}}', "Object contains unknown field `x` - at `$.proxy`"),
    ],
)
def test_a_fault_in_json_is_told(text: str | bytes, told: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        policy_from_json(text)
    assert raised.value.message.startswith(told)


@pytest.mark.parametrize("kind", [Policy, Rule, Inject, RateLimit, Mcp, UpstreamProxy])
def test_unknown_keys_are_refused_at_every_level(kind: type) -> None:
    required = {"url": "a"} if kind is UpstreamProxy else {}
    msgspec.convert(required, kind)
    with pytest.raises(msgspec.ValidationError, match="unknown field `other`"):
        msgspec.convert({**required, "other": 1}, kind)


def test_the_schema_has_every_key_and_allows_no_other() -> None:
    found = schema()
    assert json.loads(json.dumps(found)) == found
    for kind in (Policy, Rule, Inject, RateLimit, Mcp, UpstreamProxy):
        described = found["$defs"][kind.__name__]
        assert set(described["properties"]) == set(kind.__struct_fields__)
        assert described["additionalProperties"] is False
        assert all(key["description"].endswith(".") for key in described["properties"].values())
        assert "Args:" not in described["description"]


@pytest.mark.parametrize("text", ["", " \n", "# to be done\n", "{}", "{\n}\n"])
def test_a_text_without_any_key_is_refused_with_the_presets_that_may_be_meant(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="it has no rule, so it denies everything") as raised:
        policy_from_text(text)
    assert "`none` denies everything, and `internet` allows it" in str(raised.value)


def test_a_text_that_says_that_it_has_no_rules_is_a_policy() -> None:
    assert policy_from_text("rules = []\n") == policy_from_text('{"rules": []}') == Policy()
    assert policy_from_text('mode = "observe"') == Policy(mode="observe")


def test_a_text_that_begins_with_a_brace_is_json_and_any_other_is_toml() -> None:
    wanted = Policy.allow("example.com")
    assert policy_from_text(' {"rules": [{"hosts": ["example.com"]}]}') == wanted
    assert policy_from_text('[[rules]]\nhosts = ["example.com"]\n') == wanted


@pytest.mark.parametrize("text", ["", "# a comment\n", "{}", " {\n}\n"])
def test_a_text_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="the policy is empty"):
        policy_from_text(text)


@pytest.mark.parametrize(("text", "kind"), [("}", "TOML"), ("{}}", "JSON"), ("# {}\n}", "TOML")])
def test_braces_alone_are_no_empty_policy(text: str, kind: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"the policy is no {kind}"):
        policy_from_text(text)
