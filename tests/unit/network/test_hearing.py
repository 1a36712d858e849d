"""Waiting for the edge to have told everything so far."""

from __future__ import annotations

import asyncio

from atoll.network.hearing import Hearing


def test_answers_come_in_the_order_of_the_questions_also_to_those_who_wait_no_more() -> None:
    async def test() -> None:
        hearing, asked = Hearing(), []
        await hearing.wait(lambda: asked.append("late"), 0.01)
        first = asyncio.create_task(hearing.wait(lambda: asked.append("first"), 60))
        second = asyncio.create_task(hearing.wait(lambda: asked.append("second"), 60))
        await asyncio.sleep(0)
        assert asked == ["late", "first", "second"]
        hearing.answered()  # nobody waits for this one any more
        hearing.answered()
        await first
        assert not second.done()
        hearing.lost()
        await second
        hearing.answered()

    asyncio.run(test())
