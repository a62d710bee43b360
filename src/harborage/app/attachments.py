"""Attach the user's files to a run: read them, check them, and put them into its artifacts.

Errors are found before the model is called: a missing file, a picture that is none, one that is too large for the
model, one for a model that accepts no pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore
from harborage.artifacts.media import MOST_BYTES, File, Media, MediaError, media_type, size_text
from harborage.errors import HarborageError
from harborage.llm import ConfigSnapshot, ModelProfile
from harborage.llm.model import configuration_of
from harborage.runtime.effects.model import is_own_planner

if TYPE_CHECKING:
    from harborage.app.agent import Agent
    from harborage.identity import Identity

_READER: Final = "artifact_fetch"
_SOURCE: Final = {"kind": "attachment"}


class AttachmentError(HarborageError):
    """A file cannot be attached; the text names it and says what to do. `path` is the file."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"cannot attach {path}: {reason}")


class Attachment(msgspec.Struct, frozen=True):
    """A file as it was read: its name without folders, its MIME type by content or by name, and its bytes."""

    path: str
    name: str
    mime: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Whether a model gets it as a picture."""
        return self.mime.startswith("image/")


def read_attachment(path: Path) -> Attachment:
    """Read the file at `path`.

    Raises:
        AttachmentError: it is missing, no file, empty, too large, or named as a picture and none.
    """
    try:
        read = File(path)
    except MediaError as error:
        raise AttachmentError(str(path), error.reason) from error
    return Attachment(str(path), read.name, read.mime, read.data)


def read_piped(stream: BinaryIO) -> Attachment:
    """Read what is written to `stream`, to its end, as a file that is called stdin.

    Raises:
        AttachmentError: it is empty or too large.
    """
    data = stream.read(MOST_BYTES + 1)
    if not data or len(data) > MOST_BYTES:
        why = "it is empty" if not data else f"it is longer than {size_text(MOST_BYTES)}"
        raise AttachmentError("standard input", why)
    return Attachment("-", "stdin", media_type("stdin", data, "stdin"), data)


def check_attachments(attachments: Sequence[Attachment], agent: Agent[Any, Any], environ: Mapping[str, str]) -> None:
    """Accept files that the agent's model accepts; nothing is checked for a client that the agent itself opened.

    Raises:
        AttachmentError: the model accepts no pictures, or none so large.
        LLMError: the model cannot be configured; the text names the setting.
    """
    if not any(one.is_image for one in attachments) or agent.model is None:
        return
    models = agent.model if isinstance(agent.model, list | tuple) else (agent.model,)
    for model in models:
        config = configuration_of(model, environ)
        if isinstance(config, ConfigSnapshot):
            _check_pictures(attachments, config)


def _check_pictures(attachments: Sequence[Attachment], config: ConfigSnapshot) -> None:
    from harborage.llm.configure import complete_settings
    from harborage.llm.providers import known_profile

    full = complete_settings(config)
    profile = full.profiles.get(full.model)
    if profile is None:
        return
    is_known = known_profile(full.model, full.provider) is not None
    for one in attachments:
        if one.is_image:
            _check_picture(one, full, profile, is_known)


def _check_picture(one: Attachment, config: ConfigSnapshot, profile: ModelProfile, is_known: bool) -> None:
    """Refuse a picture above the limit, which would reach the model as a mere reference."""
    limit = profile.inline_limit_bytes
    setting = f"llm.profiles[{config.model!r}].inline_limit_bytes"
    if limit is None and is_known:
        raise AttachmentError(
            one.path, f"{config.model} accepts no pictures: choose a model that does; if it does, set {setting}"
        )
    most = limit if limit is not None else config.heavy_output_threshold or 0
    if len(one.data) >= most:
        raise AttachmentError(
            one.path,
            f"it has {size_text(len(one.data))}, and {config.model} gets pictures below {size_text(most)}: "
            f"make it smaller; if the model takes larger ones, set {setting}",
        )


def check_media(media: Sequence[Media], agent: Agent[Any, Any], environ: Mapping[str, str]) -> None:
    """Accept pictures that the agent's model accepts.

    Raises:
        AttachmentError, LLMError: as of `check_attachments`.
    """
    check_attachments(
        [Attachment(one.name or repr(one), one.name, one.mime, one.data) for one in media], agent, environ
    )


def readable(agent: Agent) -> Agent:
    """Return the agent with a tool that reads attached files, if it uses a model and has no such tool yet."""
    options = agent.options
    is_own = is_own_planner(agent.planner)
    if is_own or _READER in options.built_in:
        return agent
    built_in = (*options.built_in, _READER)
    return agent.replace(options=msgspec.structs.replace(options, built_in=built_in))


async def attach(store: ArtifactStore, who: Identity, attachments: Sequence[Attachment]) -> list[ArtifactRef]:
    """Put files into the session of `who`; return their ids, for `Runtime.start(input_artifacts=…)`."""
    scope = ArtifactScope.of(who)
    return [
        await store.put_bytes(scope, one.data, mime_type=one.mime, filename=one.name, source=_SOURCE)
        for one in attachments
    ]
