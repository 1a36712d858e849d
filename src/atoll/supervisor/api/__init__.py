"""The HTTP API: routes, their documentation, and nothing that the operations behind them should know."""

from atoll.supervisor.api.app import make_app
from atoll.supervisor.api.server import ApiServer

__all__ = ["ApiServer", "make_app"]
