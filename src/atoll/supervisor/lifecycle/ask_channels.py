"""Tells outside of asks, by the channels that the home's user has set."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.secrets import KeyFile
from atoll.supervisor.lifecycle.ask_pushes import MISSING, MISSING_HINT, AskPushes, is_installed
from atoll.supervisor.lifecycle.ask_webhook import AskWebhook
from atoll.supervisor.lifecycle.signed_posts import SignedPosts
from atoll.supervisor.lifecycle.untold import Untold

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.asks import Asks
    from atoll.supervisor.settings import Settings
    from atoll.supervisor.state.asks import PendingAsk
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.tasks import Tasks

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class AskChannels:
    """Tells each channel of each ask, beside whoever follows them. No ask waits for a channel."""

    tasks: Tasks
    channels: tuple[AskWebhook | AskPushes, ...]

    def tell(self, pending: PendingAsk) -> None:
        """Begin to tell of an ask."""
        for channel in self.channels:
            self.tasks.watch(channel.tell(pending))

    def are_open(self) -> bool:
        """Whether somebody hears of an ask by a channel."""
        return any(channel.is_open() for channel in self.channels)


def connect_channels(paths: Paths, settings: Settings, asks: Asks, tasks: Tasks) -> None:
    """Have the channels that are set hear of asks.

    Raises:
        HostError: The key of the webhook cannot be made or used.
    """
    acts, boot_s = asks.acts, asks.listeners.boot_s
    channels: list[AskWebhook | AskPushes] = []
    if settings.ask_webhook:
        key = KeyFile(paths.ask_webhook_key).create()
        posts = SignedPosts(settings.ask_webhook, key, asks.unix_s)
        channels.append(AskWebhook(posts, asks.answer, Untold("the webhook", acts, boot_s)))
    if settings.ask_notify:
        pushes = AskPushes(tuple(settings.ask_notify.split()), Untold("a push", acts, boot_s), boot_s)
        if not is_installed():
            _log.error("%s: %s", MISSING, MISSING_HINT)
        tasks.watch(pushes.load())
        channels.append(pushes)
    if channels:
        told = AskChannels(tasks, tuple(channels))
        asks.table.added, asks.listeners.elsewhere = told.tell, told.are_open
