from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Recovery
from atoll.types.sandboxes import users_attributes


def test_a_recovery_says_why_it_was_needed_and_what_is_lost() -> None:
    recovery = Recovery(at=1.0, how="disk", reason="the engine ended")
    assert (
        str(recovery)
        == "crashed (the engine ended) and booted from its disk; what was in its memory since is lost"
    )


def test_attributes_of_users_are_kept_and_atolls_own_refused() -> None:
    assert users_attributes(None) == {}
    assert users_attributes({"team": "ants"}) == {"team": "ants"}
    with pytest.raises(InvalidSpecError, match="atoll's own"):
        users_attributes({"atoll.x": "1"})
