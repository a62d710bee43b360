"""The verification of tokens: its order, its reasons, and what a kept result depends on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.errors import InvalidOptionError
from harborage.server.auth.keys import ALGORITHMS, KeySetError, StaticKeys, VerificationKey
from harborage.server.auth.tokens import Reason, TokenRejectedError, TokenVerifier, Verified
from harborage.testing.clock import FakeClock
from tests.kit.signing import (
    BAD_TOKENS,
    GOOD,
    NOW,
    NOW_S,
    claims,
    key_set,
    public_jwk,
    segment,
    token,
    unsigned,
)
from tests.kit.tables import each_row


def verifier(clock: FakeClock | None = None, keys: bytes | None = None, **options: object) -> TokenVerifier:
    """A verifier that knows the ES256 key `k1`."""
    chosen = {"issuer": "us", "audience": "harbor", **options}
    return TokenVerifier(StaticKeys(keys or key_set()), clock=clock or FakeClock(NOW), **chosen)  # type: ignore[arg-type]


async def reason_of(checked: TokenVerifier, bad: str) -> str:
    """Why a token is refused."""
    with pytest.raises(TokenRejectedError) as raised:
        await checked.verify(bad)
    assert str(raised.value) == f"jwt rejected: {raised.value.reason}"
    return str(raised.value.reason)


def test_there_are_eleven_reasons_and_six_algorithms() -> None:
    """Clients and operators know them by these words."""
    assert {str(reason) for reason in Reason} == {
        "token_missing",
        "token_malformed",
        "alg_not_allowed",
        "signature_invalid",
        "token_expired",
        "token_not_yet_valid",
        "unknown_key",
        "identity_claim_missing",
        "audience_mismatch",
        "issuer_mismatch",
        "verification_failed",
    }
    assert ALGORITHMS == ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
    assert {why for _, why in BAD_TOKENS.values()} == {str(reason) for reason in Reason}


@each_row("bad, why", BAD_TOKENS.values(), ids=list(BAD_TOKENS))
async def test_a_bad_token_is_refused_with_its_reason(bad: str, why: str) -> None:
    """The first check that fails names it, kept results or not."""
    checked = verifier()
    assert await reason_of(checked, bad) == why
    assert await reason_of(checked, bad) == why


@each_row("algorithm", ALGORITHMS)
async def test_each_of_the_six_algorithms_is_verified(algorithm: str) -> None:
    """By the key of its kind."""
    found = await verifier(keys=key_set(public_jwk(algorithm))).verify(token(GOOD, algorithm=algorithm))
    assert (found.tenant, found.user, found.session) == ("acme", "ada", "s-1")


# Each token breaks the check of its row and every one below it.
_ROTTEN = {"iss": "other", "aud": "other", "exp": 1, "nbf": NOW_S + 9, "tenant": "", "user": ""}
ORDER = [
    ("", "token_missing"),
    (unsigned({"alg": "none", "kid": "k9"}, _ROTTEN), "alg_not_allowed"),
    (token(_ROTTEN, kid="k9", number=1), "unknown_key"),
    (token(_ROTTEN, number=1), "signature_invalid"),
    (token(_ROTTEN), "issuer_mismatch"),
    (token({**_ROTTEN, "iss": "us"}), "audience_mismatch"),
    (token({**_ROTTEN, "iss": "us", "aud": "harbor"}), "token_expired"),
    (token({**_ROTTEN, "iss": "us", "aud": "harbor", "exp": NOW_S + 9}), "token_not_yet_valid"),
    (token({"iss": "us", "aud": "harbor", "exp": NOW_S + 9, "nbf": NOW_S, "user": ""}), "identity_claim_missing"),
]


@each_row("bad, why", ORDER)
async def test_the_checks_have_one_order(bad: str, why: str) -> None:
    """Blank, algorithm, key, signature, issuer, audience, end, begin, identity."""
    assert await reason_of(verifier(), bad) == why


@each_row(
    "options, payload",
    [
        ({"issuer": "", "audience": ()}, claims()),
        ({"issuer": "", "audience": ""}, claims(iss="whoever", aud="whatever")),
        ({"audience": ("other", "harbor")}, claims(iss="us", aud="harbor")),
        ({}, claims(iss="us", aud=["x", "harbor"])),
        ({}, claims(iss="us", aud="harbor", exp=NOW_S + 0.5)),
        ({}, claims(iss="us", aud="harbor", exp=10**30)),
        ({}, claims(iss="us", aud="harbor", nbf=NOW_S)),
    ],
)
async def test_what_is_not_configured_is_not_checked(options: dict[str, object], payload: dict[str, object]) -> None:
    """Issuer and audience count where the verifier has them; one audience of several is enough."""
    assert (await verifier(**options).verify(token(payload))).user == "ada"


@each_row(
    "scopes, expected",
    [
        (None, ()),
        ([], ()),
        ("admin console:fleet", ("admin", "console:fleet")),
        ("  admin  ", ("admin",)),
        (["admin", "", " ", 5, None, "write:all"], ("admin", "write:all")),
        (["admin", "admin"], ("admin",)),
        (7, ()),
        ({"admin": True}, ()),
    ],
)
async def test_scopes_are_a_list_or_one_text(scopes: object, expected: tuple[str, ...]) -> None:
    """What is no text is dropped, unknown words stay."""
    payload = {**GOOD} if scopes is None else {**GOOD, "scopes": scopes}
    assert (await verifier().verify(token(payload))).scopes == expected


@each_row("session, expected", [(None, ""), ("", ""), ("  ", ""), (5, ""), ("s-9", "s-9")])
async def test_the_session_of_a_token_may_be_absent(session: object, expected: str) -> None:
    """Then each request names its own."""
    assert (
        await verifier().verify(token({**claims(session=session), "iss": "us", "aud": "harbor"}))
    ).session == expected


async def test_a_refusal_says_what_the_token_says_of_itself() -> None:
    """Its key, issuer and subject, cut and without control characters; nothing else of it."""
    long = token({**GOOD, "exp": 1, "sub": "ada\n" + "x" * 500})
    with pytest.raises(TokenRejectedError) as raised:
        await verifier().verify(long)
    error = raised.value
    assert (error.kid, error.issuer, error.subject) == ("k1", "us", "ada " + "x" * 116)
    assert long not in str(error)


async def test_a_token_ends_at_its_second() -> None:
    """Without leeway, also when it was accepted before."""
    clock, good = FakeClock(NOW), token({**GOOD, "exp": NOW_S + 5})
    checked = verifier(clock)
    assert (await checked.verify(good)).user == "ada"
    clock.advance(4.999)
    assert (await checked.verify(good)).user == "ada"
    clock.advance(0.001)
    assert await reason_of(checked, good) == "token_expired"


class Counting:
    """A set of keys that can be exchanged, and counts its questions."""

    def __init__(self) -> None:
        self.keys = StaticKeys(key_set())
        self.is_broken = False
        self.asked = 0

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        self.asked += 1
        if self.is_broken:
            raise KeySetError("keys.json", "is gone")
        return await self.keys.find(kid, algorithm)


def kept(checked: TokenVerifier) -> int:
    """How many results a verifier keeps."""
    return len(checked._cached)


async def test_a_key_that_is_gone_ends_what_it_verified() -> None:
    """A kept result asks for its key at every use: gone, or exchanged under its id, it proves nothing."""
    keys, good = Counting(), token(claims())
    checked = TokenVerifier(keys, clock=FakeClock(NOW))
    first = await checked.verify(good)
    assert await checked.verify(good) is first
    assert keys.asked == 2
    keys.keys = StaticKeys(key_set(public_jwk("ES256", number=1)))
    assert await reason_of(checked, good) == "signature_invalid"
    keys.keys = StaticKeys(key_set(public_jwk("ES256", kid="k2")))
    assert await reason_of(checked, good) == "unknown_key"
    keys.keys = StaticKeys(key_set())
    assert (await checked.verify(good)).user == "ada"


async def test_without_keys_no_token_is_accepted() -> None:
    """A set that could never be read proves nothing, and is no error of the server."""
    keys = Counting()
    keys.is_broken = True
    assert await reason_of(TokenVerifier(keys, clock=FakeClock(NOW)), token()) == "verification_failed"


async def test_kept_results_are_bounded_and_only_of_good_tokens() -> None:
    """The one that was not used for longest goes; strangers cannot fill it."""
    checked = TokenVerifier(StaticKeys(key_set()), clock=FakeClock(NOW), max_cached=3)
    good = [token(claims(sub=f"s{index}")) for index in range(5)]
    for one in good[:3]:
        await checked.verify(one)
    oldest = await checked.verify(good[0])
    await checked.verify(good[3])
    assert kept(checked) == 3
    assert await checked.verify(good[0]) is oldest
    for bad, _ in BAD_TOKENS.values():
        if bad.strip():
            with pytest.raises(TokenRejectedError):
                await TokenVerifier.verify(verifier_of_same(checked), bad)
    assert kept(checked) == 3


def verifier_of_same(checked: TokenVerifier) -> TokenVerifier:
    """The verifier itself, with the checks of issuer and audience that the bad tokens need."""
    checked._issuer, checked._audiences = "us", frozenset({"harbor"})
    return checked


@each_row("keys", [None, "keys.json", b"{}"])
def test_a_verifier_needs_keys(keys: object) -> None:
    """A path is not taken for a set of keys."""
    with pytest.raises(InvalidOptionError, match="FileKeys"):
        TokenVerifier(keys)  # type: ignore[arg-type]


_text = st.text(max_size=40)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_headers = st.fixed_dictionaries(
    {},
    optional={"alg": st.sampled_from([*ALGORITHMS, "none", "HS256", 1]), "kid": st.just("k1") | _json, "crit": _json},
)
_NAMES = ("tenant", "user", "session", "scopes", "exp", "nbf", "iss", "aud", "sub")
_CLAIMS = st.fixed_dictionaries({}, optional=dict.fromkeys(_NAMES, _json))


GARBAGE = verifier()
TRUSTING = TokenVerifier(StaticKeys(key_set()), clock=FakeClock(NOW))


@given(st.text(max_size=200) | st.lists(_text, min_size=3, max_size=3).map(".".join))
async def test_garbage_is_refused(text: str) -> None:
    """Any text is an answer of one of the reasons, never a failure."""
    with pytest.raises(TokenRejectedError):
        await GARBAGE.verify(text)


@given(_headers, st.binary(max_size=60) | _CLAIMS, st.binary(max_size=80))
async def test_a_token_of_any_parts_is_refused(header: dict[str, object], payload: object, signature: bytes) -> None:
    """What nobody signed is accepted in no form."""
    with pytest.raises(TokenRejectedError):
        await GARBAGE.verify(f"{segment(header)}.{segment(payload)}.{segment(signature)}")


@given(_CLAIMS, st.booleans())
async def test_signed_claims_of_any_kind_are_an_identity_or_a_refusal(
    payload: dict[str, object], is_dated: bool
) -> None:
    """A trusted issuer may be broken, too: nothing that it signs makes the server fail."""
    if is_dated:
        payload = {"tenant": "acme", "user": "ada", **payload, "exp": NOW_S + 5}
    try:
        found = await TRUSTING.verify(token(payload))
    except TokenRejectedError:
        return
    assert isinstance(found, Verified)
    assert found.tenant.strip()
    assert found.user.strip()
