"""Sizes on the command line."""

from __future__ import annotations

import click
import pytest

from atoll.cli.atoll import atoll
from atoll.cli.sizes import Mib, mib_of
from atoll.types import NO_LIMIT


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512m", 512),
        ("512M", 512),
        ("512MiB", 512),
        ("512mb", 512),
        ("2g", 2048),
        ("1.5GiB", 1536),
    ],
)
def test_a_size_is_mib_or_has_a_unit(text: str, mib: int) -> None:
    assert mib_of(text) == mib


@pytest.mark.parametrize("text", ["", "m", "512k", "-1", "1.5", "12 parsecs", "0x10", "none"])
def test_what_is_no_size_is_refused_with_the_ways_to_give_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size: give MiB, or a unit as in 512m or 2g"):
        Mib().convert(text, None, None)


def test_only_a_limit_that_may_be_off_takes_none() -> None:
    assert Mib(none=True).convert("none", None, None) == NO_LIMIT


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("create", "--memory"),
        ("create", "--disk"),
        ("run", "--memory"),
        ("limits", "--memory"),
        ("template build", "--memory"),
        ("team create", "--memory"),
        ("team set", "--disk"),
        ("volume create", "--quota"),
        ("volume set", "--quota"),
    ],
)
def test_every_size_takes_a_unit(path: str, option: str) -> None:
    command: click.Command = atoll
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    (parameter,) = (each for each in command.params if option in each.opts)
    assert parameter.type.convert("2g", parameter, None) == 2048
    assert isinstance(parameter, click.Option) and parameter.metavar == "SIZE"
