"""Reads what the edge and the relay have decided."""

from __future__ import annotations

import logging

import msgspec

from atoll.network.channel import Message
from atoll.types import EgressDecision
from atoll.types.internal import converted

_log = logging.getLogger(__name__)


def decisions_of(message: Message) -> list[EgressDecision]:
    """Return the decisions that a message tells of. What means nothing is logged and left out.

    Raises:
        KeyError: It tells of none.
    """
    decisions = []
    for entry in message["entries"]:
        try:
            decisions.append(converted(entry, EgressDecision))
        except msgspec.ValidationError as error:  # the others are worth keeping
            _log.error("a decision was told that means nothing: %s", error)
    return decisions
