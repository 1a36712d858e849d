"""The base of every error."""

from __future__ import annotations

from atoll.remedies import Face, harmless, in_words_of


class AtollError(Exception):
    """Base of every error of this package.

    Characters that a terminal would obey are spelled out in the message, since a guest may have written some.

    Args:
        message: What went wrong, and with which thing.
        hint: What the reader can do about it; shown after the message. See ``atoll.remedies`` for its words.
        sandbox_id: The sandbox concerned, if there is one.
        retryable: Whether the same call, unchanged, may succeed later. None means what the class says.

    Attributes:
        code: Names the class in JSON. It never changes.
        remedy: The hint as it was written, which each face shows in its own words.
        retryable: Whether the same call, unchanged, may succeed later. It does not say that nothing was done:
            after a DeadlineError something may have been.
    """

    code = "error"
    retryable: bool = False

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        sandbox_id: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        message = harmless(message)
        super().__init__(message)
        self.message = message
        self.remedy = hint
        self.sandbox_id = sandbox_id
        if retryable is not None:
            self.retryable = retryable

    @property
    def hint(self) -> str | None:
        """What the reader can do about it, in words of the SDK."""
        return self.hint_for("sdk")

    def hint_for(self, face: Face) -> str | None:
        """Return what the reader can do about it, in words of what the reader uses."""
        return None if self.remedy is None else in_words_of(face, self.remedy)

    def told_to(self, face: Face) -> str:
        """Return the message with the hint, in words of what the reader uses."""
        hint = self.hint_for(face)
        return f"{self.message} ({hint})" if hint else self.message

    def __str__(self) -> str:
        return self.told_to("sdk")
