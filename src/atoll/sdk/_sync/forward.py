# Made by scripts/unasync.py from sdk/_async/forward.py: do not edit.
"""Forwards ports of this host's loopback interface into a sandbox."""

from __future__ import annotations

from atoll.errors import AtollError, StateError
from atoll.sdk._sync.api import Api
from atoll.sdk._io_sync import Background, Listener, Stream, both, sleep, user_socket
from atoll.sdk._listening import cannot_listen
from atoll.types.internal import check_number

_MOST = 512
_SHORTAGE_S = 0.05


class Forward:
    """Forwards connections from a listener on 127.0.0.1 to a port of a sandbox, while the context lasts.

    ``port`` is the local port, and ``url`` the address for an http client. Each connection wakes the sandbox
    if it sleeps. If the dial fails, the connection is closed. Leaving the context closes the listener and all
    its connections. Entering it raises InvalidSpecError if the local port is taken, or only for root.
    """

    def __init__(self, api: Api, sandbox_id: str, port: int, local_port: int) -> None:
        for name, value, least in (("port", port, 1), ("local_port", local_port, 0)):
            check_number(name, value, least=least, most=65535, whole=True, hint=f"give {least} to 65535")
        self.remote_port = port
        self.port: int = local_port
        self._api = api
        self._sandbox_id = sandbox_id
        self._background = Background()
        self._streams: set[Stream] = set()
        self._listener: Listener | None = None
        self._closing = False

    def __repr__(self) -> str:
        where = f"127.0.0.1:{self.port}" if self.port else "not open"
        return f"<{type(self).__name__} {where} to port {self.remote_port} of sandbox {self._sandbox_id}>"

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT`` of the local port.

        Raises:
            StateError: The context has not been entered, so there is no port yet.
        """
        if self._listener is None:
            raise StateError(
                "the forward is not open", hint="enter it first: `with sandbox.ports.forward(8000) as f`"
            )
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Forward:
        try:
            self._listener = Listener(self.port)
        except OSError as error:
            raise cannot_listen(self.port, error) from None
        self.port = self._listener.port
        self._background.__enter__()
        self._background.start(self._accept, self._listener)
        return self

    def __exit__(self, *error: object) -> None:
        self._closing = True
        if self._listener is not None:
            self._listener.abort()
        for stream in list(self._streams):
            stream.abort()
        try:
            self._background.__exit__(*error)  # type: ignore[arg-type]
        finally:
            if self._listener is not None:
                self._listener.close()
            for stream in list(self._streams):
                stream.close()

    def _accept(self, listener: Listener) -> None:
        while not self._closing:
            try:
                stream = listener.accept()
            except OSError:
                # the listener was aborted, or this process lacks descriptors for a while
                sleep(_SHORTAGE_S)
                continue
            if len(self._streams) >= 2 * _MOST:
                stream.close()
                continue
            self._streams.add(stream)
            if self._closing:  # the connections made before were aborted
                stream.close()
                return
            self._background.start(self._serve, stream)

    def _serve(self, near: Stream) -> None:
        far: Stream | None = None
        try:
            far = Stream(user_socket(self._api.dial(self._sandbox_id, self.remote_port)))
            self._streams.add(far)
            if self._closing:
                return
            both((self._pump, near, far), (self._pump, far, near))
        except (AtollError, OSError):
            # the peer sees a closed connection; a TCP port cannot report more
            return
        finally:
            for stream in (near, far):
                if stream is not None:
                    self._streams.discard(stream)
                    stream.abort()
                    stream.close()

    def _pump(self, source: Stream, target: Stream) -> None:
        """Move bytes until the source ends, and pass the end on."""
        try:
            while data := source.receive(None):
                target.send(data, None)
        except OSError:
            source.abort()
            target.abort()
            return
        target.send_end()
