"""The errors of the LLM edge that its types raise.

A missing identity is the identity room's error, named here too so that a caller of a model needs one import.
"""

from __future__ import annotations

from harborage.errors import HarborageError
from harborage.identity import IdentityMissingError

__all__ = ["ClientClosedError", "IdentityMissingError", "InvalidContentError", "LLMError"]


class LLMError(HarborageError):
    """A call to a language model failed."""


class ClientClosedError(LLMError):
    """The LLM client is closed; open a new one to make further calls."""


class InvalidContentError(LLMError):
    """A message's content is malformed: give it a text or a list of parts, and each part its body."""
