"""Values that two files must share, each written down twice because neither can import the other's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from atoll import __version__
from atoll.cli.commands.serve import SERVER_PACKAGES
from atoll.engines import RUNSC_VERSION
from atoll.host import binaries
from atoll.network.addresses import GATEWAY_ADDRESS
from atoll.protocol import AGENT_PORT

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def default(flag: str) -> str:
    """The default of a flag of the guest agent, which is started without any."""
    found = re.search(rf'flag\.\w+\("{flag}", "?([^",]+)"?,', (ROOT / "agent/main.go").read_text())
    assert found is not None
    return found[1]


def test_the_agent_listens_where_it_is_dialled_and_answers_who_dials_it() -> None:
    assert default("port") == str(AGENT_PORT)
    assert default("host") == GATEWAY_ADDRESS


def test_the_version_of_runsc_has_the_date_of_the_gvisor_that_it_is_built_from() -> None:
    pinned = re.search(r"gvisor\.dev/gvisor v0\.0\.0-(\d{8})", (ROOT / "native/go.mod").read_text())
    assert pinned is not None
    assert RUNSC_VERSION.startswith(f"atoll-{pinned[1]}.")


def test_the_extra_base_asks_for_the_image_of_the_same_version() -> None:
    assert [text.partition(";")[0] for text in EXTRAS["base"]] == [f"atoll-base=={__version__}"]


def test_serve_looks_for_all_packages_of_its_extra() -> None:
    assert {Requirement(text).name for text in EXTRAS["server"]} == set(SERVER_PACKAGES)


def test_an_install_without_programs_names_the_processors_that_wheels_are_built_for() -> None:
    built = re.search(r"^_ARCHITECTURES = \{(.+)\}$", (ROOT / "hatch_build.py").read_text(), re.MULTILINE)
    assert built is not None
    assert tuple(re.findall(r'"(\w+)":', built[1])) == binaries._MACHINES
