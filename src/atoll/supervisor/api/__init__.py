"""The HTTP API: its routes and their documentation. The operations behind them do not depend on it."""

from atoll.supervisor.api.app import make_app
from atoll.supervisor.api.server import ApiServer

__all__ = ["ApiServer", "make_app"]
