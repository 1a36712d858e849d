from pathlib import Path

import click
import pytest

from atoll.cli.network import NetworkParameter, policy_text
from atoll.policy import policy_from_text
from atoll.types import Policy


def test_an_empty_file_is_refused_with_its_name_and_the_presets(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("# to be done\n")
    with pytest.raises(click.BadParameter) as raised:
        NetworkParameter().convert(str(file), None, None)
    assert f"{file}: the policy is empty" in raised.value.message
    assert "`none` denies everything, and `internet` allows it" in raised.value.message


@pytest.mark.parametrize("policy", [Policy(), Policy.allow("example.com")])
def test_what_is_shown_of_a_policy_is_taken_again(policy: Policy) -> None:
    assert policy_from_text(policy_text(policy)) == policy
