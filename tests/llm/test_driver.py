"""The frame of the drivers over client libraries: extras that are missing, and connections that fail."""

from __future__ import annotations

import httpx2
import pytest

from harborage.errors import MissingExtraError
from harborage.llm import ConfigSnapshot, ConnectionFailedError, Deps, LLMConfigError, ProviderTimeoutError
from harborage.llm.driver import import_sdk, transport_error
from harborage.llm.pydantic_ai import make
from harborage.llm.request_parts import decode_arguments, safe_id
from tests.kit.tables import each_row


def test_a_missing_library_names_its_extra():
    """The error says what to install."""
    with pytest.raises(MissingExtraError, match=r"the Some driver needs .*harborage\[some\]") as missing:
        import_sdk("no_such_library_anywhere", extra="some", what="the Some driver")
    assert missing.value.extra == "some"


@each_row(
    "error, kind",
    [
        (httpx2.ConnectTimeout("slow"), ProviderTimeoutError),
        (httpx2.PoolTimeout("full"), ProviderTimeoutError),
        (httpx2.ConnectError("refused"), ConnectionFailedError),
        (httpx2.RemoteProtocolError("cut"), ConnectionFailedError),
        (httpx2.StreamClosed(), ConnectionFailedError),
        (ValueError("a listener's own"), type(None)),
    ],
)
def test_what_the_transport_raises_is_translated(error, kind):
    """Errors of either client library become ours; any other error is left alone."""
    assert type(transport_error(error, provider="p", model="m")) is kind


def test_a_library_that_the_bridge_lacks_is_a_setting():
    """pydantic-ai says itself which of its parts a provider needs, and the error repeats that."""
    driver = make(ConfigSnapshot(model="test"), Deps(artifacts=None, bus=None))
    translated = driver._translate_error(ImportError("Please install `boto3`"), "bedrock:x")
    assert isinstance(translated, LLMConfigError)
    assert "boto3" in str(translated)


@each_row(
    "args, wanted", [(b"", {}), (b'{"a":1}', {"a": 1}), (b"[1]", {"malformed": "[1]"}), (b"{", {"malformed": "{"})]
)
def test_arguments_are_an_object(args, wanted):
    """What a model wrote that is no object is kept as text, where a provider takes nothing but objects."""
    assert decode_arguments(args) == wanted


def test_an_id_has_only_letters_that_every_provider_takes():
    """Ids of another provider are spelled so that this one takes them, and never become empty."""
    assert (safe_id("call|1 x"), safe_id("call_1-x"), safe_id("")) == ("call_1_x", "call_1-x", "call")
