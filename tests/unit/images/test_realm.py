from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import ImagePullError
from atoll.images.realm import Realm, is_key, realm_of, realms_of
from atoll.types import ImageAccess, RegistryLogin

DIGEST = "sha256:" + "0123456789abcdef" * 4
LOGIN = RegistryLogin(username="ant", password="hill")
OWNER, ALL, ANTS = Realm(None), Realm(""), Realm("ants")


def test_an_image_pulled_with_a_teams_credentials_is_that_teams_alone() -> None:
    assert realm_of(ImageAccess()) == OWNER
    assert realm_of(ImageAccess(login=LOGIN)) == OWNER
    assert realm_of(ImageAccess(team="ants")) == ALL
    assert realm_of(ImageAccess(team="ants", login=LOGIN)) == ANTS
    assert [realm.team for realm in (OWNER, ALL, ANTS)] == [None, None, "ants"]


def test_a_team_finds_its_own_images_and_those_of_all_and_with_trust_the_owners() -> None:
    assert realms_of(ImageAccess()) == (OWNER,)
    assert realms_of(ImageAccess(team="ants")) == (ANTS, ALL)
    assert realms_of(ImageAccess(team="ants", trusted=True)) == (OWNER, ALL)


def test_only_the_owners_names_are_without_a_mark() -> None:
    assert [realm.key("tool:1") for realm in (OWNER, ALL, ANTS)] == ["tool:1", "@/tool:1", "@ants/tool:1"]
    assert not is_key("tool:1")
    assert is_key("@/tool:1")


def test_no_realm_shares_a_directory_with_another() -> None:
    names = {realm.directory(DIGEST) for realm in (OWNER, ALL, ANTS, Realm("bees"))}
    assert len(names) == 4
    assert OWNER.directory(DIGEST) == DIGEST.replace(":", "-")
    with pytest.raises(ImagePullError):
        ANTS.directory("sha256:..")


def test_a_teams_unfinished_downloads_are_apart_for_each_repository() -> None:
    base = Path("/downloads")
    assert OWNER.downloads(base, "tool") == base
    places = {realm.downloads(base, name) for realm in (ALL, ANTS) for name in ("tool", "other")}
    assert len(places) == 4
    assert {place.parent for place in places} == {base}


def test_a_realm_has_the_keys_that_it_makes_and_no_others() -> None:
    realms = (OWNER, ALL, ANTS, Realm("ant"))
    for realm in realms:
        assert [other for other in realms if other.has(realm.key("tool:1"))] == [realm]
