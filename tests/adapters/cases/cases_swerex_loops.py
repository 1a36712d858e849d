"""A deployment, used as SWE-agent does: from one event loop after another."""

from __future__ import annotations

import asyncio

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

from atoll import Sandbox
from atoll.adapters.swerex import AtollDeployment


def test_each_call_may_have_an_event_loop_of_its_own() -> None:
    deployment = AtollDeployment(image="base")
    asyncio.run(deployment.start())
    asyncio.run(deployment.runtime.create_session(CreateBashSessionRequest()))
    asyncio.run(deployment.runtime.run_in_session(BashAction(command="x=1")))
    assert asyncio.run(deployment.runtime.run_in_session(BashAction(command="echo $x"))).output == "1\n"
    asyncio.run(deployment.stop())
    assert list(Sandbox.list()) == []
