"""Tokens that this process signs: keys of a file or of the process, rotation, and the token for development."""

from __future__ import annotations

import hashlib
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.protocol.methods import TokenScope
from harborage.server.auth.keys import ALGORITHMS, CURVES, MIN_RSA_BITS, StaticKeys
from harborage.server.auth.tokens import TokenVerifier
from harborage.server.services import Caller

DEV_KID: Final = "harbor-dev"
DEV_ISSUER: Final = "harbor-dev"
DEV_AUDIENCE: Final = "harbor"
DEV_IDENTITY: Final = Identity("dev", "dev", "dev")
DEV_SCOPES: Final = (TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
LIFETIME: Final = timedelta(hours=24)

_SKEW: Final = timedelta(minutes=1)
_CURVE_NAMES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


class SigningKeyError(HarborageError):
    """A key cannot sign tokens. `path` is its file."""

    def __init__(self, path: Path | str = "", why: str = "") -> None:
        self.path = str(path)
        super().__init__(f"{path}: {why}" if path else why)


class SigningKey(msgspec.Struct, frozen=True):
    """A private key with its id and its algorithm. It never shows itself."""

    kid: str
    algorithm: str
    private: Any

    def __repr__(self) -> str:
        return f"SigningKey(kid={self.kid!r}, algorithm={self.algorithm!r})"

    @classmethod
    def new(cls, kid: str = "") -> SigningKey:
        """Return a new ES256 key; without `kid` its id is its thumbprint."""
        return _signing_key(ec.generate_private_key(ec.SECP256R1()), kid)

    def public_set(self) -> bytes:
        """Return the set of public keys that verifies what this key signs, as JSON."""
        public = {**_public_fields(self.private), "kid": self.kid, "alg": self.algorithm, "use": "sig"}
        return msgspec.json.format(msgspec.json.encode({"keys": [public]}), indent=2)

    def pem(self) -> bytes:
        """Return the private key, unencrypted."""
        found: bytes = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return found


class TokenMint(msgspec.Struct, frozen=True, kw_only=True):
    """Signs tokens with one key. `issuer` and `audience` are left out of them where blank."""

    key: SigningKey
    issuer: str = ""
    audience: str = ""
    lifetime: timedelta = LIFETIME
    clock: Clock = SYSTEM_CLOCK

    def issue(self, caller: Caller) -> tuple[str, datetime]:
        """Return a new token of the same principal and scopes, and when it expires."""
        who = caller.who
        return self.sign(who.tenant_id, who.user_id, who.session_id, caller.raw_scopes)

    def sign(self, tenant: str, user: str, session: str = "", scopes: Iterable[str] = ()) -> tuple[str, datetime]:
        """Return a new token, and when it expires. Without `session` each request names its own."""
        now = self.clock.now()
        expires = (now + self.lifetime).replace(microsecond=0)
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": user,
            "aud": self.audience,
            "tenant": tenant,
            "user": user,
            "session": session,
            "scopes": list(map(str, scopes)),
            "iat": int(now.timestamp()),
            "nbf": int((now - _SKEW).timestamp()),
            "exp": int(expires.timestamp()),
        }
        given = {name: value for name, value in claims.items() if value not in ("", [])}
        token = jwt.encode(given, self.key.private, self.key.algorithm, headers={"kid": self.key.kid})
        return token, expires


def development_mint(clock: Clock = SYSTEM_CLOCK) -> TokenMint:
    """Return what signs the tokens of one development server, with a key that ends with the process."""
    return TokenMint(key=SigningKey.new(DEV_KID), issuer=DEV_ISSUER, audience=DEV_AUDIENCE, clock=clock)


def sign_development_token(mint: TokenMint) -> str:
    """Return a token of the principal for development, who may do everything."""
    token, _ = mint.issue(Caller(DEV_IDENTITY, frozenset(DEV_SCOPES), tuple(map(str, DEV_SCOPES))))
    return token


def verifier_of(mint: TokenMint) -> TokenVerifier:
    """Return what accepts the tokens of `mint`, and no others."""
    keys = StaticKeys(mint.key.public_set(), "the server's own key")
    return TokenVerifier(keys, issuer=mint.issuer, audience=mint.audience, clock=mint.clock)


def load_signing_key(path: Path) -> SigningKey:
    """Return the private key of a file, PEM or JWK.

    Raises:
        SigningKeyError: there is none, or none that can sign; the text says what to do.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SigningKeyError(
            path, f"cannot be read: {error.strerror}; make a key: harborage token --new-key {path}"
        ) from error
    return _of_pem(text, path) if text.lstrip().startswith(b"-----BEGIN") else _of_jwk(text, path)


def write_new_key(path: Path, kid: str = "") -> Path:
    """Write a new private key that only its owner can read, and its set of public keys beside it; return the latter.

    Raises:
        SigningKeyError: one of the files is there already, or cannot be written; nothing is left behind.
    """
    key = SigningKey.new(kid)
    public = path.with_name(f"{path.stem}.jwks.json")
    written: list[Path] = []
    try:
        for target, text, mode in ((path, key.pem(), 0o600), (public, key.public_set() + b"\n", 0o644)):
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                written.append(target)
                file.write(text)
    except OSError as error:
        for target in written:
            target.unlink(missing_ok=True)
        is_there = isinstance(error, FileExistsError)
        what = "is there already; name another file" if is_there else f"cannot be written: {error.strerror}"
        raise SigningKeyError(error.filename or path, what) from error
    return public


def _of_pem(text: bytes, path: Path) -> SigningKey:
    try:
        private = load_pem_private_key(text, password=None)
    except TypeError as error:
        raise SigningKeyError(
            path, f"the key is encrypted; decrypt it: openssl pkey -in {path} -out KEY, and protect that file"
        ) from error
    except ValueError as error:
        if _is_public(text):
            raise SigningKeyError(path, "this is a public key; a token is signed with the private one") from error
        raise SigningKeyError(path, "this is no private key that can be read; PEM or JWK, RSA or EC") from error
    return _checked(path, private)


def _is_public(text: bytes) -> bool:
    try:
        load_pem_public_key(text)
    except ValueError:
        return False
    return True


def _of_jwk(text: bytes, path: Path) -> SigningKey:
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise SigningKeyError(path, "this is neither PEM nor JSON; give a private key as PEM or JWK") from error
    if not isinstance(fields, dict) or fields.get("kty") not in {"RSA", "EC"}:
        raise SigningKeyError(path, "this is no RSA or EC key; give one private key as PEM or JWK, not a set of keys")
    if "d" not in fields:
        raise SigningKeyError(path, "this is a public key; a token is signed with the private one")
    try:
        private = jwt.get_algorithm_by_name("RS256" if fields["kty"] == "RSA" else "ES256").from_jwk(fields)
    except Exception as error:
        raise SigningKeyError(path, f"the key cannot be read ({type(error).__name__}); make another") from error
    kid, declared = fields.get("kid"), fields.get("alg")
    return _checked(path, private, kid if isinstance(kid, str) else "", declared if isinstance(declared, str) else "")


def _checked(path: Path, private: Any, kid: str = "", algorithm: str = "") -> SigningKey:
    try:
        key = _signing_key(private, kid, algorithm)
    except SigningKeyError as error:
        raise SigningKeyError(path, str(error)) from error
    return key


def _signing_key(private: Any, kid: str, algorithm: str = "") -> SigningKey:
    """Return a key with its id and algorithm; they are those given, else what the key itself says."""
    if isinstance(private, rsa.RSAPrivateKey):
        if private.key_size < MIN_RSA_BITS:
            raise SigningKeyError("", f"the key has {private.key_size} bits; use {MIN_RSA_BITS} or more")
        possible = [name for name in ALGORITHMS if name.startswith("RS")]
    elif isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name in _CURVE_NAMES:
        possible = [CURVES[_CURVE_NAMES[private.curve.name]]]
    else:
        raise SigningKeyError("", "this kind of key signs no tokens; use RSA, or EC of P-256, P-384 or P-521")
    if algorithm and algorithm not in possible:
        raise SigningKeyError("", f"its alg {algorithm!r} is not one of its kind: {', '.join(possible)}")
    return SigningKey(kid or _thumbprint(_public_fields(private)), algorithm or possible[0], private)


def _public_fields(private: Any) -> dict[str, str]:
    """The fields of the public key that a thumbprint counts."""
    name = "RS256" if isinstance(private, rsa.RSAPrivateKey) else "ES256"
    fields: Mapping[str, Any] = jwt.get_algorithm_by_name(name).to_jwk(private.public_key(), as_dict=True)
    return {key: fields[key] for key in ("crv", "e", "kty", "n", "x", "y") if key in fields}


def _thumbprint(fields: Mapping[str, str]) -> str:
    """The thumbprint of a public key (RFC 7638), by which everybody names it alike."""
    spelled = msgspec.json.encode(dict(sorted(fields.items())))
    return urlsafe_b64encode(hashlib.sha256(spelled).digest()).rstrip(b"=").decode()
