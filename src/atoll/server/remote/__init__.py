"""The remote SDK's side of the server: the supervisor's API for one team, and tunnels into its sandboxes."""

from atoll.server.remote.routes import remote_routes

__all__ = ["remote_routes"]
