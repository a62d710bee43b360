"""The redactor: nine rules, nothing changed in place, nothing secret left."""

from __future__ import annotations

import base64
import copy
import dataclasses
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.events import (
    BUS_DRIVERS,
    MASK,
    REDACTOR_DRIVERS,
    NotificationPayload,
    PatternRedactor,
    RedactionDepthExceededError,
    RedactionFailedError,
    Redactor,
    RedactorMissingError,
    must_redactor,
    redactor,
    with_redactor,
)
from harborage.events.redaction import KEY_RULES, RULES
from tests.kit.redactors import NoopRedactor
from tests.kit.tables import each_row


def redact(value: Any) -> Any:
    return PatternRedactor().redact(value)


SECRET_KEYS = [key for _, keys in KEY_RULES for key in keys]


class Reference:
    """Stands for an artifact reference."""

    __harborage_reference__ = True


# Keys.


def test_the_nine_rules_have_an_order() -> None:
    """The rules apply in this order."""
    assert " ".join(RULES) == ("api_key password secret token cookie authorization bearer bearer_in_value multimodal")


def test_the_secret_keys_are_these() -> None:
    """Each rule masks exactly these keys."""
    assert " ".join(SECRET_KEYS) == (
        "api_key apikey api-key x-api-key password passwd pass secret client_secret private_key signing_key "
        "token access_token refresh_token id_token cookie set-cookie authorization authorisation bearer bearer_token"
    )


@each_row("key", SECRET_KEYS)
@each_row("value", ["x", 1, None, True, 1.5, {"a": 1}, ["x"], b"x", ""])
def test_a_secret_key_hides_any_value(key: str, value: Any) -> None:
    """The whole value is masked, whatever it is, however the key is written."""
    for spelling in (key, key.upper(), f"  {key.title()}\t"):
        assert redact({spelling: value}) == {spelling: MASK}


@each_row("key", ["tokens", "my_token", "password_hint", "keys", "passport", "secretary", "api key", ""])
def test_a_key_that_only_contains_a_secret_word_is_kept(key: str) -> None:
    """Keys match whole, never in part."""
    assert redact({key: 5}) == {key: 5}


def test_only_keys_are_inspected() -> None:
    """The word in a value says nothing about its neighbour."""
    value = [{"name": "token", "value": "x"}]
    assert redact(value) == value


def test_secrets_are_found_at_any_place() -> None:
    """Dicts in lists in tuples in dicts are all looked into."""
    assert redact({"a": [({"token": 1, "b": {"PASS": 2}},)]}) == {"a": [({"token": MASK, "b": {"PASS": MASK}},)]}


def test_keys_that_are_not_text_are_kept_and_their_values_walked() -> None:
    """A numeric key is no secret, but what is under it may hold one."""
    assert redact({1: "a", 2: {"token": "x"}}) == {1: "a", 2: {"token": MASK}}


# Bearer tokens in text.


@each_row(
    "text, safe",
    [
        ("use Bearer abc.def now", "use Bearer *** now"),
        ("bearer abc", "Bearer ***"),
        ("BEARER\n\tabc+/=~._-", "Bearer ***"),
        ("Bearer a, Bearer b", "Bearer ***, Bearer ***"),
        ("(Bearer abc)", "(Bearer ***)"),
        ("é-Bearer abc", "é-Bearer ***"),
        ("éBearer abc", "éBearer ***"),
        ("Bearer\u00a0abc", "Bearer ***"),
        ("forbearer abc", "forbearer abc"),
        ("Bearer", "Bearer"),
        ("Bearer  ", "Bearer  "),
        ("a bearer of news", "a Bearer *** news"),
    ],
)
def test_bearer_tokens_in_text_are_masked(text: str, safe: str) -> None:
    """Each token behind the word is masked, and the rest of the text kept."""
    assert redact(text) == safe
    assert redact({"note": [text]}) == {"note": [safe]}


# Binary bodies in text.


def test_a_data_url_becomes_a_description() -> None:
    """The body is replaced by its type and its decoded size."""
    assert redact("data:image/png;base64,AAAA") == "[redacted: image/png of 3 bytes]"


@each_row(
    "text, safe",
    [
        ("see data:image/png;base64,AA== !", "see [redacted: image/png of 1 bytes] !"),
        ("DATA:Image/PNG;BASE64,AAA=", "[redacted: Image/PNG of 2 bytes]"),
        ("data:;base64,AAAAAAAA", "[redacted: application/octet-stream of 6 bytes]"),
        ("data:text/plain,hello", "[redacted: text/plain of 5 bytes]"),
        ("data:,a", "[redacted: application/octet-stream of 1 bytes]"),
        ("data:image/png;base64,AAAAA", "[redacted: image/png of 3 bytes]"),
        ("data:a/b,x data:c/d,yy", "[redacted: a/b of 1 bytes] [redacted: c/d of 2 bytes]"),
        ("data: nothing here", "data: nothing here"),
        ("metadata:ok", "metadata:ok"),
    ],
)
def test_data_urls_in_text_are_described(text: str, safe: str) -> None:
    """Each body is described on its own; text that merely says data: is kept."""
    assert redact(text) == safe


@each_row(
    "header, mime",
    [
        ("iVBORw0KGgo", "image/png"),
        ("/9j/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGRiQ", "audio/wav"),
        ("UklGRxx", "image/webp"),
        ("AAABAA", "image/x-icon"),
        ("SUkqAA", "image/tiff"),
        ("TU0AKgA", "image/tiff"),
        ("//uQ", "audio/mpeg"),
        ("//tA", "audio/mpeg"),
        ("AAAAIGZ0eXA", "video/mp4"),
        ("AAAAGGZ0eXA", "video/mp4"),
    ],
)
def test_naked_base64_is_known_by_its_header(header: str, mime: str) -> None:
    """A long string that begins like a picture, a sound or a film is described as a whole."""
    assert redact(header.ljust(256, "A")) == f"[redacted: {mime} of 192 bytes]"
    assert redact(header.ljust(255, "A")) == header.ljust(255, "A")


def test_other_long_text_is_kept() -> None:
    """Length alone makes nothing binary, and a header counts only at the beginning."""
    for text in ("A" * 5000, "x" + "/9j/".ljust(300, "A")):
        assert redact(text) == text


@given(st.binary(min_size=1, max_size=200))
def test_the_size_of_a_data_url_is_exact(data: bytes) -> None:
    """Well-formed base64 is described with the number of bytes it holds."""
    url = f"data:a/b;base64,{base64.b64encode(data).decode()}"
    assert redact(url) == f"[redacted: a/b of {len(data)} bytes]"


# Kinds of values.


@each_row("value", [None, 1, 1.5, True, b"token", bytearray(b"x"), datetime(2026, 1, 1, tzinfo=UTC), object(), int])
def test_opaque_values_pass_through(value: Any) -> None:
    """Numbers, bytes, times and unknown kinds are neither copied nor looked into."""
    assert redact(value) is value
    assert redact({"a": value})["a"] is value


def test_a_reference_passes_through_everywhere() -> None:
    """A pointer to an artifact is no secret, even under a secret's name."""
    reference = Reference()
    assert redact(reference) is reference
    assert redact({"token": reference, "list": [reference]}) == {"token": reference, "list": [reference]}


class Account(msgspec.Struct):
    Name: str
    Password: str = "hunter2"
    key: str = msgspec.field(default="hunter2", name="apiKey")


class Tagged(msgspec.Struct, tag="call", tag_field="kind"):
    token: str = "hunter2"


@dataclasses.dataclass
class Login:
    User: str
    PASS: str = "hunter2"
    a: str = dataclasses.field(default="hunter2", metadata={"config": "secret", "json": "other"})
    b: str = dataclasses.field(default="hunter2", metadata={"json": "id_token"})


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    User: str
    hidden: str = pydantic.Field("hunter2", serialization_alias="access_token")


class Sketch:
    def to_json(self) -> dict[str, str]:
        return {"token": "hunter2"}


class Attribute:
    def __init__(self, name: str) -> None:
        self.name = name


class Attrs:
    """Looks like a class made by attrs."""

    __attrs_attrs__ = (Attribute("User"), Attribute("Token"))

    def __init__(self) -> None:
        self.User, self.Token = "ann", "hunter2"


@each_row(
    "value, safe",
    [
        (Attrs(), {"user": "ann", "token": MASK}),
        (Account("ann"), {"name": "ann", "password": MASK, "apiKey": MASK}),
        (Tagged(), {"kind": "call", "token": MASK}),
        (Login("ann"), {"user": "ann", "pass": MASK, "secret": MASK, "id_token": MASK}),
        (Model.model_validate({"User": "a", "token": "hunter2"}), {"user": "a", "access_token": MASK, "token": MASK}),
        (Sketch(), {"token": MASK}),
        (msgspec.Raw(b'{"token":"hunter2"}'), {"token": MASK}),
        (NotificationPayload("c", "info", "s", "/d", "task.failed", 3),
         {"class": "c", "severity": "info", "summary": "s", "deeplink": "/d", "origineventtype": "task.failed",
          "origineventsequence": 3}),
    ],
)  # fmt: skip
def test_typed_objects_become_dicts_by_alias(value: Any, safe: Any) -> None:
    """Whatever has a JSON form is looked into; fields go by their alias, else by their name in lower case."""
    assert redact({"x": [value]}) == {"x": [safe]}


def test_sets_become_lists() -> None:
    """The members of a set are redacted like those of a list."""
    assert redact({"Bearer abc"}) == ["Bearer ***"]


def test_an_enum_of_text_stays_itself() -> None:
    """A member without a secret in its text is kept as a member."""

    class Mode(StrEnum):
        A = "a"

    assert redact(Mode.A) is Mode.A


# Depth and failure.


def _nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def test_the_walk_goes_63_levels_deep() -> None:
    """A value at level 63 is reached, one at level 64 is refused; the error names the cause."""
    assert redact(_nested(63)) == _nested(63)
    with pytest.raises(RedactionFailedError) as caught:
        redact(_nested(64))
    assert isinstance(caught.value.__cause__, RedactionDepthExceededError)
    assert caught.value.__cause__.limit == 64
    assert caught.value.rule == "api_key"


def test_an_object_costs_one_level_more() -> None:
    """Turning an object into a dict counts as a level."""
    assert redact(_nested(61, Tagged())) == _nested(61, {"kind": "call", "token": MASK})
    with pytest.raises(RedactionFailedError):
        redact(_nested(63, Tagged()))


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle has no end, so it is too deep."""
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(RedactionFailedError):
        redact(cycle)


def test_an_object_that_cannot_be_read_fails_without_quoting_it() -> None:
    """The words of a foreign error are not passed on, its kind is."""

    class Broken:
        def to_json(self) -> Any:
            raise ValueError("hunter2")

    with pytest.raises(RedactionFailedError, match="ValueError") as caught:
        redact({"a": Broken()})
    assert "hunter2" not in str(caught.value)


# Properties.

MARK = "5ecret5ecret"
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary())
SECRETS = st.one_of(
    st.sampled_from(SECRET_KEYS).flatmap(
        lambda key: st.sampled_from([key, key.upper(), f" {key} "]).map(lambda spelling: {spelling: MARK})
    ),
    st.sampled_from(SECRET_KEYS).map(lambda key: {key: {"deep": [MARK]}}),
    st.text(alphabet=" (),é", max_size=3).map(lambda before: f"{before}Bearer {MARK}"),
    st.just(f"data:image/png;base64,{MARK}"),
    st.just("iVBORw0KGgo" + MARK * 40),
    st.just(Login("ann", MARK, MARK, MARK)),
    st.just(Account("ann", MARK, MARK)),
)


def _trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.tuples(inner, inner),
            st.dictionaries(st.one_of(st.text(max_size=8), st.integers()), inner, max_size=4),
        ),
        max_leaves=12,
    )


@given(_trees(st.one_of(LEAVES, SECRETS)))
def test_no_secret_survives(value: Any) -> None:
    """Wherever in a value a secret sits, it is not in the copy."""
    assert MARK not in repr(redact(value))


@given(_trees(st.one_of(LEAVES, SECRETS)))
def test_the_original_is_never_changed(value: Any) -> None:
    """The value is the same after as before, and shares no container with the copy."""
    before = copy.deepcopy(value)
    out = redact(value)
    assert value == before
    assert not _containers(value) & _containers(out)


def _containers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*map(_containers, value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*map(_containers, value))
    return set()


@given(_trees(st.one_of(LEAVES, SECRETS)))
def test_redacting_twice_changes_nothing_more(value: Any) -> None:
    """What has been made safe is left alone."""
    once = redact(value)
    assert redact(once) == once


@given(_trees(st.one_of(st.none(), st.booleans(), st.integers(), st.text(alphabet="xyz", max_size=9))))
def test_what_holds_no_secret_comes_back_equal(value: Any) -> None:
    """Redaction touches nothing but secrets."""
    assert redact(value) == value


@given(_trees(SECRETS))
def test_what_is_left_can_still_be_encoded(value: Any) -> None:
    """A redacted value has a JSON form in which the secret does not appear either."""
    try:
        out = codec.encode(redact(value))
    except codec.UnserializableError:
        return
    assert MARK.encode() not in out


# Ambient redactor and drivers.


def test_the_ambient_redactor_is_bound_for_a_block() -> None:
    """Inside the block it is there, outside it is what it was before."""
    one, other = PatternRedactor(), NoopRedactor()
    assert redactor() is None
    with with_redactor(one):
        with with_redactor(other):
            assert must_redactor() is other
        assert redactor() is must_redactor() is one
    assert redactor() is None


def test_a_missing_redactor_is_an_error_where_one_is_needed() -> None:
    """Code that must redact refuses to go on without a redactor."""
    with pytest.raises(RedactorMissingError):
        must_redactor()


def test_the_default_redactor_has_a_name() -> None:
    """Configuration knows the default drivers by name, and nothing that leaks."""
    assert REDACTOR_DRIVERS.names() == ["patterns"]
    assert isinstance(REDACTOR_DRIVERS.factory("patterns")(), PatternRedactor)
    assert BUS_DRIVERS.names() == ["durable", "inmem"]


def test_both_redactors_fit_the_port() -> None:
    """The default and the one for tests are redactors; the latter returns its input."""
    value = {"token": "x"}
    assert isinstance(PatternRedactor(), Redactor)
    assert isinstance(NoopRedactor(), Redactor)
    assert NoopRedactor().redact(value) is value
