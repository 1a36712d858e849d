from __future__ import annotations

from pathlib import Path

from atoll.images.recipe import PACKAGES, Recipe, digest, installed_packages

STATUS = """\
Package: b
Status: install ok installed
Architecture: amd64
Version: 2.0
Description: a package
 Package: not this one

Package: a
Status: install ok installed
Architecture: all
Version: 1:1-1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 3
"""


def test_the_packages_are_read_from_the_status_file() -> None:
    assert installed_packages(STATUS) == ["a 1:1-1 all", "b 2.0 amd64"]


def test_a_digest_tells_contents_apart_but_not_their_order() -> None:
    assert digest("f", ["a", "b"]) == digest("f", ["b", "a"])
    assert len({digest("f", ["a"]), digest("g", ["a"]), digest("f", ["b"])}) == 3


def test_the_way_to_the_mirror_does_not_change_the_fingerprint() -> None:
    near = Recipe(suite="bookworm", sources={"host.list": "deb x y main\n"}, apt_options=('A::B "c"',))
    assert near.fingerprint() == Recipe(suite="bookworm").fingerprint()
    assert near.fingerprint() != Recipe(suite="trixie").fingerprint()


def test_the_call_names_every_package_and_source() -> None:
    recipe = Recipe(
        suite="bookworm", sources={"host.list": "", "host.sources": ""}, apt_options=('A::B "c"',)
    )
    argv = recipe.argv(Path("/build/rootfs"), Path("/build"))
    assert argv[-4:] == ["bookworm", "/build/rootfs", "/build/host.list", "/build/host.sources"]
    assert f"--include={','.join(PACKAGES)}" in argv
    assert "--kill-child" in argv


def test_a_proxys_password_is_in_a_file_and_not_in_the_arguments() -> None:
    recipe = Recipe(suite="bookworm", apt_options=('Acquire::http::Proxy "http://me:secret@proxy:3128"',))
    assert "secret" not in " ".join(recipe.argv(Path("/build/rootfs"), Path("/build")))
    assert "--aptopt=/build/apt-options" in recipe.argv(Path("/build/rootfs"), Path("/build"))
    assert 'Acquire::http::Proxy "http://me:secret@proxy:3128";\n' in recipe.files()["apt-options"]


def test_the_packages_are_sorted_and_single() -> None:
    assert list(PACKAGES) == sorted(set(PACKAGES))
