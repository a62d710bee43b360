"""Raw heavy content in a conversation is found, and its place told exactly."""

from __future__ import annotations

import base64

import pytest

from harborage.llm import AudioPart, ChatMessage, Content, FilePart, ImagePart, Role, TextPart
from harborage.llm.chain.leaks import Leak, find_leak

THRESHOLD = 100
LIGHT = ChatMessage(Role.USER, Content("light"))


def data_url(size: int) -> str:
    """A data URL of `size` bytes, decoded."""
    return f"data:image/png;base64,{base64.b64encode(bytes(size)).decode()}"


def found(*messages: ChatMessage, inline_limit: int = THRESHOLD) -> Leak | None:
    """The first leak."""
    return find_leak(messages, THRESHOLD, inline_limit)


@pytest.mark.parametrize(
    ("content", "site"),
    [
        (Content("x" * THRESHOLD), "Messages[1].Content.Text"),
        (Content("é" * (THRESHOLD // 2)), "Messages[1].Content.Text"),
        (Content(parts=[TextPart("a"), TextPart("x" * THRESHOLD)]), "Messages[1].Parts[1].Text"),
        (Content(parts=[ImagePart(data_url=data_url(THRESHOLD))]), "Messages[1].Parts[0].Image.DataURL"),
        (Content(parts=[AudioPart(data_url=data_url(THRESHOLD))]), "Messages[1].Parts[0].Audio.DataURL"),
        (Content(parts=[FilePart(data_url=data_url(THRESHOLD))]), "Messages[1].Parts[0].File.DataURL"),
    ],
)
def test_a_leak_is_named(content: Content, site: str) -> None:
    """Exactly at the threshold content leaks, in bytes; the site says where it stands."""
    assert found(LIGHT, ChatMessage(Role.USER, content)) == Leak(site, THRESHOLD, THRESHOLD)


@pytest.mark.parametrize(
    "content",
    [
        Content("x" * (THRESHOLD - 1)),
        Content("é" * (THRESHOLD // 2 - 1) + "x"),
        Content(parts=[TextPart("x" * (THRESHOLD - 1))]),
        Content(parts=[ImagePart(data_url=data_url(THRESHOLD - 1))]),
        Content(parts=[FilePart(url="https://x/" + "y" * THRESHOLD)]),
        Content(),
    ],
)
def test_one_byte_below_the_threshold_passes(content: Content) -> None:
    """Decoded sizes count: an encoded URL may be longer than the threshold while its content is below it."""
    assert found(ChatMessage(Role.USER, content)) is None


@pytest.mark.parametrize("role", list(Role))
def test_every_role_is_looked_at(role: Role) -> None:
    """System messages are no exception."""
    assert found(ChatMessage(role, Content("x" * THRESHOLD))) is not None


def test_the_first_leak_counts() -> None:
    """Messages and parts are looked at in order."""
    heavy = ChatMessage(Role.USER, Content(parts=[TextPart("x" * THRESHOLD), TextPart("x" * 500)]))
    assert found(LIGHT, heavy, heavy) == Leak("Messages[1].Parts[0].Text", THRESHOLD, THRESHOLD)


def test_media_have_a_limit_of_their_own() -> None:
    """A model that takes more inline gets more; its texts stay under the threshold."""
    image = ChatMessage(Role.USER, Content(parts=[ImagePart(data_url=data_url(500))]))
    assert found(image, inline_limit=501) is None
    assert found(image, inline_limit=500) == Leak("Messages[0].Parts[0].Image.DataURL", 500, 500)
    assert found(ChatMessage(Role.USER, Content("x" * 500)), inline_limit=501) is not None


def test_only_the_places_given_are_looked_at() -> None:
    """Whoever knows where a leak may be spares the rest."""
    heavy = ChatMessage(Role.USER, Content("x" * THRESHOLD))
    assert find_leak([heavy, LIGHT, heavy], THRESHOLD, THRESHOLD, where=[1, 2]) == Leak(
        "Messages[2].Content.Text", THRESHOLD, THRESHOLD
    )
    assert find_leak([heavy], THRESHOLD, THRESHOLD, where=()) is None
