"""What can go wrong with a model on one's own machine before it has said a word. Each text says what to type."""

from __future__ import annotations

from harborage.llm.errors import InvalidConfigError, LLMError


class UnknownWeightsError(InvalidConfigError):
    """No weights have this name. `name` is what was asked for, `known` what there is, sorted."""

    def __init__(self, name: str = "", known: tuple[str, ...] = ()) -> None:
        self.name = name
        self.known = known
        super().__init__(
            f"no weights are named {name!r}; known are {', '.join(known) or '<none>'}, "
            "and any file of one's own: local:/path/to/model.gguf"
        )


class WeightsMissingError(InvalidConfigError):
    """The weights are not on this machine, or not whole. `path` is where they should be."""

    def __init__(self, message: str = "", path: str = "") -> None:
        self.path = path
        super().__init__(message)


class PullFailedError(LLMError):
    """The weights could not be fetched; what was there before is as it was."""


class LocalServerError(LLMError):
    """The embedded server does not start with these weights."""
