from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.policy import Suggestion, check_policy, closed, plain, policy_from_toml, suggest, to_toml
from atoll.policy.paths import MOST_PATHS, path_patterns
from atoll.types import HOST_NAME, EgressDecision, Policy, Rule
from tests.unit.policy.policies import ADDRESSES, NAMES, SEEN_PORTS
from tests.unit.policy.reference import Judge

RANDOM = settings(deadline=None, derandomize=True, database=None, max_examples=200)


def seen(host: str, port: int = 443, **given: Any) -> EgressDecision:
    """What an observing policy without rules let through."""
    return EgressDecision(
        **{"at": 1.0, "action": "deny", "rule": None, "scheme": "tcp", "observed": True, **given},
        host=host,
        port=port,
    )


def request(host: str, method: str, path: str, port: int = 443, **given: Any) -> EgressDecision:
    return seen(host, port, **{"scheme": "https", "method": method, "path": path, **given})


def test_nothing_seen_suggests_nothing() -> None:
    assert suggest([]) == Suggestion(Policy())


def test_hosts_with_the_same_ports_share_a_rule() -> None:
    found = suggest([seen("b.example"), seen("a.example"), seen("b.example"), seen("c.example", 22)])
    assert found.policy.rules == (
        Rule(hosts=("a.example", "b.example"), ports=(443,)),
        Rule(hosts=("c.example",), ports=(22,)),
    )
    assert found.notes == ()


def test_ports_in_a_row_become_a_range() -> None:
    found = suggest([seen("a.example", port) for port in (8002, 8000, 8001, 80, 443)])
    assert found.policy.rules == (Rule(hosts=("a.example",), ports=(80, 443, "8000-8002")),)


def test_what_a_rule_allowed_is_covered_as_what_was_only_observed() -> None:
    found = suggest([seen("a.example", action="allow", rule=3, observed=False)])
    assert found.policy.rules == (Rule(hosts=("a.example",), ports=(443,)),)


def test_what_somebody_was_asked_about_counts_by_its_outcome() -> None:
    def told(action: str, path: str) -> EgressDecision:
        return request("a.example", "POST", path, action=action, rule=0, observed=False)

    asked = [told("ask", "/yes"), told("allow", "/yes"), told("ask", "/no"), told("deny", "/no")]
    found = suggest(asked)
    assert [rule.paths for rule in found.policy.rules] == [("/yes",)]
    assert len(found.notes) == 1 and "/no" in found.notes[0]


def test_names_take_their_plain_form() -> None:
    found = suggest([seen("A.example."), seen("a.example")])
    assert found.policy.rules == (Rule(hosts=("a.example",), ports=(443,)),)


def test_bare_addresses_have_rules_of_their_own() -> None:
    found = suggest([seen("8.8.8.8", 53), seen("2606:4700::1", 53), seen("a.example", 53)])
    assert Rule(addresses=("2606:4700::1/128", "8.8.8.8/32"), ports=(53,)) in found.policy.rules
    assert Rule(hosts=("a.example",), ports=(53,)) in found.policy.rules


def test_requests_are_covered_by_method_and_path() -> None:
    found = suggest(
        [
            request("a.example", "GET", "/simple/pip/"),
            request("a.example", "HEAD", "/simple/pip/"),
            request("a.example", "POST", "/login"),
        ]
    )
    assert (
        set(found.policy.rules)
        if False
        else sorted(found.policy.rules, key=str)
        == [
            Rule(hosts=("a.example",), ports=(443,), methods=("GET", "HEAD"), paths=("/simple/pip/",)),
            Rule(hosts=("a.example",), ports=(443,), methods=("POST",), paths=("/login",)),
        ]
    )


def test_hosts_and_ports_with_the_same_requests_share_a_rule() -> None:
    found = suggest(
        [request(host, "GET", "/x", port) for host in ("a.example", "b.example") for port in (80, 443)]
    )
    assert found.policy.rules == (
        Rule(hosts=("a.example", "b.example"), ports=(80, 443), methods=("GET",), paths=("/x",)),
    )


def test_a_connection_that_was_not_looked_into_needs_a_rule_without_conditions() -> None:
    found = suggest(
        [request("a.example", "GET", "/x"), seen("a.example"), request("a.example", "GET", "/x", 80)]
    )
    assert sorted(found.policy.rules, key=str) == [
        Rule(hosts=("a.example",), ports=(443,)),
        Rule(hosts=("a.example",), ports=(80,), methods=("GET",), paths=("/x",)),
    ]


def test_what_was_refused_is_noted_and_not_suggested() -> None:
    found = suggest(
        [
            seen("10.0.0.1", 80, observed=False, reason="10.0.0.1 is private", count=3),
            seen("nowhere.example", 0, scheme="dns", method="A", observed=False, reason="no such name"),
            request("a.example", "POST", "/x", observed=False, reason="no rule allows it"),
        ]
    )
    assert found == Suggestion(
        Policy(),
        (
            "10.0.0.1:80 was refused and is not covered: 10.0.0.1 is private (3 times)",
            "the name nowhere.example was refused and is not covered: no such name",
            "POST a.example:443/x was refused and is not covered: no rule allows it",
        ),
    )


def test_what_a_rule_is_against_is_noted_although_it_was_only_observed() -> None:
    found = suggest(
        [
            seen("a.example", rule=0, reason="rule 1 denies a.example:443"),
            seen("b.example", action="unplug", rule=1),
        ]
    )
    assert found.policy == Policy()
    assert found.notes == (
        "a.example:443 is not covered, because a rule is against it: rule 1 denies a.example:443",
        "b.example:443 is not covered, because a rule is against it",
    )


def test_a_name_that_was_only_asked_for_needs_no_rule() -> None:
    assert suggest([seen("a.example", 0, scheme="dns", method="A")]) == Suggestion(Policy())


def test_a_guest_cannot_write_a_pattern_into_the_policy() -> None:
    found = suggest(
        [
            request("a.example", "GET", "/**"),
            request("a.example", "GET", "*"),
            request("a.example", "*", "/"),
            seen("*"),
            seen("*.example"),
            seen("127.0.0.1"),
        ]
    )
    assert found.policy == Policy()
    assert found.notes[0] == (
        "the request 'GET' '/**' to a.example cannot be written as a rule: write one by hand"
    )
    assert "'*' is no host that a rule can name" in found.notes
    assert len(found.notes) == 6


def test_many_names_below_one_are_listed_and_a_person_is_told() -> None:
    names = tuple(sorted(f"x{at}.cdn.example" for at in range(6)))
    found = suggest([seen(name) for name in names])
    assert found.policy.rules == (Rule(hosts=names, ports=(443,)),)
    assert found.notes == (
        "6 names below cdn.example were seen; *.cdn.example would cover them and every other",
    )
    assert suggest([seen(name) for name in names[:5]]).notes == ()


def test_notes_are_bounded() -> None:
    found = suggest([seen(f"10.0.{at}.1", 80, observed=False) for at in range(250)])
    assert len(found.notes) == 101
    assert found.notes[-1] == "and 150 more"


def test_a_flood_of_hosts_still_gives_a_valid_policy() -> None:
    hosts = [request(f"h{at}.example", "GET", f"/{at}x") for at in range(1100)]
    found = suggest(hosts)
    check_policy(found.policy)
    assert len(found.policy.rules) == 1000
    assert "100 rules more than a policy may have are left out" in found.notes
    names = suggest([seen(f"h{at}.example") for at in range(1200)])
    check_policy(names.policy)
    assert sorted(len(rule.hosts) for rule in names.policy.rules) == [200, 500, 500]


def test_ids_in_paths_become_stars() -> None:
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    assert path_patterns(["/users/12/repos", "/users/345/repos"]) == ("/users/*/repos",)
    assert path_patterns([f"/o/{uuid}"]) == ("/o/*",)
    assert path_patterns(["/c/4fa9bd3", "/c/" + "ab12" * 10]) == ("/c/*",)
    assert path_patterns(["/t/AbCdEf0123456789xyz", "/t/" + "s" * 65]) == ("/t/*",)


def test_words_in_paths_stay_words() -> None:
    paths = ("/", "/deadbeef", "/simple/my-long-package-name-v2-extra/", "/v1", "/v1/chat", "/x.whl")
    assert path_patterns(paths) == tuple(sorted(paths))


def test_a_path_that_a_star_beside_it_matches_is_left_out() -> None:
    assert path_patterns(["/users/12", "/users/me", "/users/"]) == ("/users/", "/users/*")
    assert path_patterns(["/users/12/x", "/users/me"]) == ("/users/*/x", "/users/me")


def test_more_than_eight_siblings_become_two_stars() -> None:
    packages = [f"/simple/{name}/" for name in "abcdefgh"]
    assert path_patterns(packages) == tuple(packages)
    assert path_patterns([*packages, "/simple/i/", "/simple", "/other"]) == (
        "/other",
        "/simple",
        "/simple/**",
    )


def test_a_host_has_a_bounded_number_of_paths() -> None:
    paths = [f"/{a}/{b}/{c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    assert len(path_patterns(paths)) == MOST_PATHS
    assert path_patterns(["/x/" * 40 + "end"])[0].endswith("/**")


SEGMENTS = st.sampled_from(["", "a", "b", "12", "345", "users", "4fa9bd3"])
PATHS = st.lists(SEGMENTS, max_size=4).map(lambda segments: "/" + "/".join(segments))


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern of the kinds that are suggested matches a path."""
    beginning, _, all_below = pattern.partition("/**")
    steps, segments = beginning.split("/"), path.split("/")
    if pattern.endswith("/**"):
        assert all_below == ""
        if len(segments) <= len(steps):
            return False
        segments = segments[: len(steps)]
    return len(steps) == len(segments) and all(map(lambda step, one: step in ("*", one), steps, segments))


@RANDOM
@given(st.lists(PATHS | st.integers(0, 30).map(lambda at: f"/many/n{at}x/z"), min_size=1, max_size=60))
def test_every_path_that_was_seen_matches_a_pattern(paths: list[str]) -> None:
    patterns = path_patterns(paths)
    assert len(patterns) <= min(MOST_PATHS, len(set(paths)))
    for path in paths:
        assert any(matches(pattern, path) for pattern in patterns)


DECISIONS = st.builds(
    EgressDecision,
    at=st.just(1.0),
    action=st.sampled_from(["allow", "deny", "unplug"]),
    rule=st.none() | st.integers(0, 2),
    host=st.sampled_from([*NAMES, *ADDRESSES, "not a host"]),
    port=st.sampled_from([0, *SEEN_PORTS]),
    scheme=st.sampled_from(["tcp", "http", "https", "dns"]),
    method=st.sampled_from(["", "GET", "POST"]),
    path=PATHS,
    observed=st.booleans(),
)


@RANDOM
@given(st.lists(DECISIONS, max_size=20))
def test_a_suggestion_is_valid_and_covers_just_what_passed(decisions: list[EgressDecision]) -> None:
    policy = suggest(decisions).policy
    check_policy(policy)
    assert policy_from_toml(to_toml(policy)) == policy
    judge = Judge(policy)
    passed = [one for one in decisions if one.action == "allow" or (one.observed and one.rule is None)]
    for one in passed:
        is_name = one.host in NAMES
        if one.host == "not a host" or not one.port or (not is_name and plain(one.host).is_loopback):
            continue
        address = "127.0.0.1" if one.host == HOST_NAME else "8.8.4.4" if is_name else one.host
        found = judge.connection(one.host if is_name else None, address, one.port)
        assert found.action in ("allow", "inspect")
        if found.action == "inspect":
            assert any(
                one.method in policy.rules[at].methods
                and any(matches(each, one.path) for each in policy.rules[at].paths)
                for at in found.kept
            )
    hosts = {one.host for one in passed if one.port}
    for name in NAMES:
        if name not in hosts:
            assert not judge.knows_name(name)
    for address in ADDRESSES:
        if closed(plain(address)) and not {str(plain(host)) for host in hosts & set(ADDRESSES)} & {
            str(plain(address))
        }:
            assert judge.connection(None, address, 443).action == "deny"
