"""Keys that sign, and what they sign."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from harborage.identity import Identity
from harborage.server.auth.keys import FileKeys, StaticKeys
from harborage.server.auth.minting import (
    SigningKey,
    SigningKeyError,
    TokenMint,
    development_mint,
    load_signing_key,
    sign_development_token,
    verifier_of,
    write_new_key,
)
from harborage.server.auth.tokens import TokenRejectedError, TokenVerifier
from harborage.server.services import Caller
from harborage.testing.clock import FakeClock
from tests.kit.signing import NOW, NOW_S, private_key
from tests.kit.tables import each_row

PKCS8 = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def test_the_development_token_is_that_of_the_protocol() -> None:
    """ES256, its key's id, issuer, audience, a day, a minute of grace at its begin, one principal with every scope."""
    clock = FakeClock(NOW)
    mint = development_mint(clock)
    token = sign_development_token(mint)
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": "harbor-dev", "typ": "JWT"}
    assert jwt.decode(token, options={"verify_signature": False}) == {
        "iss": "harbor-dev",
        "aud": "harbor",
        "sub": "dev",
        "tenant": "dev",
        "user": "dev",
        "session": "dev",
        "scopes": ["admin", "console:fleet"],
        "iat": NOW_S,
        "nbf": NOW_S - 60,
        "exp": NOW_S + 86_400,
    }
    assert len(token) >= 200
    assert (await verifier_of(mint).verify(token)).scopes == ("admin", "console:fleet")
    with pytest.raises(TokenRejectedError, match="signature_invalid"):
        await verifier_of(development_mint(clock)).verify(token)


async def test_a_rotated_token_has_the_same_principal_and_scopes() -> None:
    """Unknown scopes, too; it lives as long as a new one, and the old one stays valid."""
    clock = FakeClock(NOW)
    mint = TokenMint(key=SigningKey.new(), issuer="us", audience="harbor", lifetime=timedelta(hours=1), clock=clock)
    old, _ = mint.sign("acme", "ada", "s-1", ["admin", "write"])
    clock.advance(600.5)
    new, expires = mint.issue(Caller(Identity("acme", "ada", "s-1"), raw_scopes=("admin", "write")))
    checked = verifier_of(mint)
    first, second = await checked.verify(old), await checked.verify(new)
    assert expires.timestamp() == second.expires_at == NOW_S + 4200
    assert (second.tenant, second.user, second.session, second.scopes) == ("acme", "ada", "s-1", first.scopes)


def test_a_key_shows_nothing_of_itself() -> None:
    """Its id and algorithm alone."""
    key = SigningKey.new("k")
    assert repr(key) == str(key) == "SigningKey(kid='k', algorithm='ES256')"
    assert repr(TokenMint(key=key)).count("SigningKey(kid='k', algorithm='ES256')") == 1
    assert b'"d"' not in key.public_set()


def jwk_of(algorithm: str, **more: object) -> bytes:
    """A private key as JWK."""
    fields = jwt.get_algorithm_by_name(algorithm).to_jwk(private_key(algorithm), as_dict=True)
    return msgspec.json.encode({**fields, **more})


@each_row(
    "text, algorithm, kid",
    [
        (private_key("ES256").private_bytes(*PKCS8), "ES256", ""),
        (private_key("ES384").private_bytes(*PKCS8), "ES384", ""),
        (private_key("ES512").private_bytes(*PKCS8), "ES512", ""),
        (private_key("RS256").private_bytes(*PKCS8), "RS256", ""),
        (
            private_key("ES256").private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
            "ES256",
            "",
        ),
        (jwk_of("ES256", kid="mine"), "ES256", "mine"),
        (jwk_of("ES384", kid="mine", alg="ES384"), "ES384", "mine"),
        (jwk_of("RS256", kid="mine", alg="RS512"), "RS512", "mine"),
        (jwk_of("RS256"), "RS256", ""),
    ],
)
async def test_a_private_key_of_a_file_signs(text: bytes, algorithm: str, kid: str, tmp_path: Path) -> None:
    """PEM or JWK; without an id it is known by its thumbprint."""
    file = tmp_path / "key"
    file.write_bytes(text)
    key = load_signing_key(file)
    assert key.algorithm == algorithm
    assert key.kid == kid or (not kid and len(key.kid) == 43)
    token, _ = TokenMint(key=key).sign("acme", "ada")
    found = await TokenVerifier(StaticKeys(key.public_set())).verify(token)
    assert (found.tenant, found.user, found.session, found.scopes) == ("acme", "ada", "", ())


def test_the_thumbprint_is_that_of_the_standard(tmp_path: Path) -> None:
    """The example of RFC 7638 has an id that everybody computes alike."""
    from harborage.server.auth import minting

    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs"
        "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOp"
        "bISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    )
    assert (
        minting._thumbprint({"n": modulus, "kty": "RSA", "e": "AQAB"}) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    )


def pem(key: object, password: bytes = b"") -> bytes:
    """A private key as PEM."""
    how = BestAvailableEncryption(password) if password else NoEncryption()
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))  # type: ignore[attr-defined]


@each_row(
    "text, fix",
    [
        (None, "harborage token --new-key"),
        (b"", "neither PEM nor JSON"),
        (b"secret", "neither PEM nor JSON"),
        (b"-----BEGIN NOTHING-----", "no private key that can be read"),
        (pem(private_key("ES256"), b"secret"), "openssl pkey"),
        (
            private_key("ES256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "this is a public key",
        ),
        (SigningKey.new().public_set(), "not a set of keys"),
        (b'{"kty": "oct", "k": "c2VjcmV0"}', "no RSA or EC key"),
        (b'{"kty": "EC", "crv": "P-256"}', "this is a public key"),
        (b'{"kty": "EC", "crv": "P-256", "d": "c2VjcmV0"}', "cannot be read"),
        (jwk_of("ES256", alg="RS256"), "not one of its kind: ES256"),
        (pem(private_key("EdDSA")), "this kind of key signs no tokens"),
        (pem(ec.generate_private_key(ec.SECP256K1())), "this kind of key signs no tokens"),
        (pem(rsa.generate_private_key(65537, 1024)), "has 1024 bits; use 2048"),
    ],
)
def test_a_file_that_cannot_sign_is_named_with_the_fix(text: bytes | None, fix: str, tmp_path: Path) -> None:
    """And nothing of its key."""
    file = tmp_path / "key"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(SigningKeyError, match=fix) as raised:
        load_signing_key(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert "c2VjcmV0" not in str(raised.value)


async def test_a_new_key_is_written_with_its_public_set(tmp_path: Path) -> None:
    """The private half is for its owner alone; a server takes the other."""
    file = tmp_path / "harbor.pem"
    public = write_new_key(file)
    assert public == tmp_path / "harbor.jwks.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    token, _ = TokenMint(key=load_signing_key(file)).sign("acme", "ada", "s-1")
    assert (await TokenVerifier(FileKeys(public)).verify(token)).session == "s-1"


@each_row("there", ["harbor.pem", "harbor.jwks.json"])
def test_a_new_key_replaces_nothing(there: str, tmp_path: Path) -> None:
    """Where one of the files exists, none is written."""
    folder = tmp_path / there
    folder.mkdir()
    (folder / there).write_bytes(b"mine")
    with pytest.raises(SigningKeyError, match="is there already"):
        write_new_key(folder / "harbor.pem")
    assert [(one.name, one.read_bytes()) for one in folder.iterdir()] == [(there, b"mine")]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As the place where no key can be written."""
    with pytest.raises(SigningKeyError, match="cannot be written: No such file"):
        write_new_key(tmp_path / "nowhere" / "harbor.pem")
