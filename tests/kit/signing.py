"""Tokens of tests, good and bad: keys, sets of keys, and tokens of which each part can be chosen."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When the clock of a test starts."""
NOW_S: Final = int(NOW.timestamp())

CURVES: Final[Mapping[str, tuple[type[ec.EllipticCurve], str]]] = {
    "ES256": (ec.SECP256R1, "P-256"),
    "ES384": (ec.SECP384R1, "P-384"),
    "ES512": (ec.SECP521R1, "P-521"),
}


@cache
def private_key(algorithm: str, number: int = 0) -> Any:
    """A private key of an algorithm; another one for each number."""
    if algorithm.startswith("RS"):
        return _rsa(number)
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(CURVES[algorithm][0]())


@cache
def _rsa(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def public_jwk(algorithm: str, kid: str = "k1", number: int = 0, **more: Any) -> dict[str, Any]:
    """The public half of a key as an entry of a set."""
    driver = jwt.get_algorithm_by_name(algorithm)
    fields = dict(driver.to_jwk(private_key(algorithm, number).public_key(), as_dict=True))
    fields.pop("key_ops", None)
    return {**fields, "kid": kid, **more}


def key_set(*entries: Mapping[str, Any]) -> bytes:
    """A set of keys as JSON; of the ES256 key `k1` if none is given."""
    return msgspec.json.encode({"keys": list(entries or (public_jwk("ES256"),))})


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; a change to None leaves one out."""
    whole = {"tenant": "acme", "user": "ada", "session": "s-1", "exp": NOW_S + 600, "sub": "ada@acme", **changes}
    return {name: value for name, value in whole.items() if value is not None}


def segment(value: object) -> str:
    """A part of a token: bytes as they are, else as JSON."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(
    payload: object = None,
    *,
    algorithm: str = "ES256",
    kid: str | None = "k1",
    number: int = 0,
    header: Mapping[str, Any] = {},
) -> str:
    """A token whose signature is right, whatever else it says; without a payload it is good."""
    fields = {"alg": algorithm, "typ": "JWT", **({} if kid is None else {"kid": kid}), **header}
    signed = f"{segment(fields)}.{segment(claims() if payload is None else payload)}"
    signature = jwt.get_algorithm_by_name(algorithm).sign(signed.encode(), private_key(algorithm, number))
    return f"{signed}.{segment(signature)}"


def unsigned(header: Mapping[str, Any], payload: object = None, signature: bytes = b"") -> str:
    """A token with any header and any signature."""
    return f"{segment(header)}.{segment(claims() if payload is None else payload)}.{segment(signature)}"


def signed_with_public_key(algorithm: str = "HS256") -> str:
    """A token signed with the bytes of the public key as if they were a shared secret."""
    key = private_key("ES256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{segment({'alg': algorithm, 'kid': 'k1', 'typ': 'JWT'})}.{segment(claims())}"
    return f"{signed}.{segment(hmac.digest(key, signed.encode(), sha256))}"


BAD_TOKENS: Final[Mapping[str, tuple[str, str]]] = {
    "none": ("", "token_missing"),
    "blank": ("   ", "token_missing"),
    "two parts": ("e30.e30", "token_malformed"),
    "four parts": (f"{token()}.e30", "token_malformed"),
    "no base64": (token().replace(".", ".!", 1), "token_malformed"),
    "padded": (f"{token()}=", "token_malformed"),
    "header is no object": (f"{segment([1])}.{segment(claims())}.{segment(b'x')}", "token_malformed"),
    "header is no JSON": (f"{segment(b'{')}.{segment(claims())}.{segment(b'x')}", "token_malformed"),
    "header is nested deeply": (f"{segment(b'[' * 5000)}.e30.e30", "token_malformed"),
    "not ASCII": (f"{token()}é", "token_malformed"),
    "too long": ("a" * 20_000, "token_malformed"),
    "alg none": (unsigned({"alg": "none", "kid": "k1"}), "alg_not_allowed"),
    "alg None": (unsigned({"alg": "None", "kid": "k1"}), "alg_not_allowed"),
    "no alg": (unsigned({"kid": "k1"}), "alg_not_allowed"),
    "alg is no text": (unsigned({"alg": ["ES256"], "kid": "k1"}), "alg_not_allowed"),
    "hmac with the public key": (signed_with_public_key(), "alg_not_allowed"),
    "alg PS256": (unsigned({"alg": "PS256", "kid": "k1"}), "alg_not_allowed"),
    "alg EdDSA": (unsigned({"alg": "EdDSA", "kid": "k1"}), "alg_not_allowed"),
    "alg es256": (unsigned({"alg": "es256", "kid": "k1"}), "alg_not_allowed"),
    "alg of another kind of key": (unsigned({"alg": "RS256", "kid": "k1"}), "unknown_key"),
    "alg of another curve": (token(algorithm="ES384"), "unknown_key"),
    "unknown kid": (token(kid="k9"), "unknown_key"),
    "no kid": (token(kid=None), "unknown_key"),
    "blank kid": (token(kid=""), "unknown_key"),
    "kid is no text": (token(kid=None, header={"kid": 1}), "unknown_key"),
    "crit": (token(header={"crit": ["exp"]}), "verification_failed"),
    "crit of an unencoded payload": (token(header={"crit": ["b64"], "b64": False}), "verification_failed"),
    "another key": (token(number=1), "signature_invalid"),
    "no signature": (unsigned({"alg": "ES256", "kid": "k1"}), "signature_invalid"),
    "signature of zeros": (unsigned({"alg": "ES256", "kid": "k1"}, signature=bytes(64)), "signature_invalid"),
    "its own jwk": (token(number=1, header={"jwk": public_jwk("ES256", number=1)}), "signature_invalid"),
    "its own jku": (token(number=1, header={"jku": "http://127.0.0.1:1/keys"}), "signature_invalid"),
    "its own x5u": (token(number=1, header={"x5u": "http://127.0.0.1:1/keys"}), "signature_invalid"),
    "payload is no object": (token([1]), "token_malformed"),
    "payload is no JSON": (token(b"{"), "token_malformed"),
    "payload with half a surrogate": (token(b'{"tenant":"\\ud800"}'), "token_malformed"),
    "wrong issuer": (token(claims(iss="other", aud="harbor")), "issuer_mismatch"),
    "no issuer": (token(claims(aud="harbor")), "issuer_mismatch"),
    "wrong audience": (token(claims(iss="us", aud="other")), "audience_mismatch"),
    "wrong audiences": (token(claims(iss="us", aud=["other", 1])), "audience_mismatch"),
    "no audience": (token(claims(iss="us")), "audience_mismatch"),
    "no exp": (token(claims(iss="us", aud="harbor", exp=None)), "token_expired"),
    "expired": (token(claims(iss="us", aud="harbor", exp=NOW_S - 1)), "token_expired"),
    "expires now": (token(claims(iss="us", aud="harbor", exp=NOW_S)), "token_expired"),
    "exp is a text": (token(claims(iss="us", aud="harbor", exp=str(NOW_S + 600))), "token_malformed"),
    "exp is true": (token(claims(iss="us", aud="harbor", exp=True)), "token_malformed"),
    "not yet valid": (token(claims(iss="us", aud="harbor", nbf=NOW_S + 1)), "token_not_yet_valid"),
    "expired and not yet valid": (token(claims(iss="us", aud="harbor", exp=1, nbf=NOW_S + 1)), "token_expired"),
    "no tenant": (token(claims(iss="us", aud="harbor", tenant=None)), "identity_claim_missing"),
    "no user": (token(claims(iss="us", aud="harbor", user=None)), "identity_claim_missing"),
    "blank tenant": (token(claims(iss="us", aud="harbor", tenant=" ")), "identity_claim_missing"),
    "blank user": (token(claims(iss="us", aud="harbor", user="")), "identity_claim_missing"),
    "user is a number": (token(claims(iss="us", aud="harbor", user=7)), "identity_claim_missing"),
    "user with a zero byte": (token(claims(iss="us", aud="harbor", user="a\0da")), "token_malformed"),
}
"""Every kind of bad token, and why a verifier of the issuer `us` and the audience `harbor` refuses it."""

GOOD: Final = claims(iss="us", aud="harbor")
"""The claims of a token that such a verifier accepts."""
