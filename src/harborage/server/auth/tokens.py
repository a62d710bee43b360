"""What a token proves: its checks in their order, and the eleven reasons why one is refused.

The signature is the only work of a library; header and claims are read here, once, so that no two readers can disagree
about what was signed. A token's own `jwk`, `jku` and `x5u` are never followed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from base64 import b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import jwt
import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError, InvalidOptionError, names_of
from harborage.server.auth.keys import ALGORITHMS, KeySetError, VerificationKey

if TYPE_CHECKING:
    from harborage.server.auth.keys import KeySet

MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_CACHED: Final = 1_024

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_SHOWN: Final = 120
_log: Final = logging.getLogger("harborage.server.auth")


class Reason(StrEnum):
    """Why a token was refused."""

    TOKEN_MISSING = "token_missing"
    TOKEN_MALFORMED = "token_malformed"
    ALG_NOT_ALLOWED = "alg_not_allowed"
    SIGNATURE_INVALID = "signature_invalid"
    TOKEN_EXPIRED = "token_expired"
    TOKEN_NOT_YET_VALID = "token_not_yet_valid"
    UNKNOWN_KEY = "unknown_key"
    IDENTITY_CLAIM_MISSING = "identity_claim_missing"
    AUDIENCE_MISMATCH = "audience_mismatch"
    ISSUER_MISMATCH = "issuer_mismatch"
    VERIFICATION_FAILED = "verification_failed"


class TokenRejectedError(HarborageError):
    """A token was refused. `kid`, `issuer` and `subject` are what it says of itself, unproven and maybe blank."""

    def __init__(
        self,
        reason: Reason = Reason.VERIFICATION_FAILED,
        *,
        kid: str = "",
        issuer: str = "",
        subject: str = "",
    ) -> None:
        self.reason = reason
        self.kid = kid
        self.issuer = issuer
        self.subject = subject
        super().__init__(f"jwt rejected: {reason}")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What a valid token says. `scopes` are its own words, unknown ones included; times are seconds since 1970."""

    tenant: str
    user: str
    session: str = ""
    scopes: tuple[str, ...] = ()
    subject: str = ""
    issuer: str = ""
    expires_at: float = 0.0
    not_before: float | None = None


class Validator(Protocol):
    """Says what a token proves."""

    async def verify(self, token: str) -> Verified:
        """Return what a token says, after every check.

        Raises:
            TokenRejectedError: the first check that fails.
        """
        ...


class _Cached(msgspec.Struct, frozen=True):
    key: VerificationKey
    algorithm: str
    verified: Verified


class TokenVerifier:
    """Verifies tokens by public keys: `TokenVerifier(FileKeys("keys.json"), issuer="…", audience="…")`.

    Tokens that are valid are kept by their hash, because a signature costs a hundred times a look at a table. That is
    safe: whatever the checks read is in the token, but the time and the keys, and those two are checked at every use.
    A key that has left its set, or has been exchanged under its id, ends what it verified.
    """

    def __init__(
        self,
        keys: KeySet,
        *,
        issuer: str = "",
        audience: str | Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        max_cached: int = MAX_CACHED,
    ) -> None:
        if not hasattr(keys, "aclose"):
            raise InvalidOptionError("keys", keys, "a set of public keys, such as FileKeys('keys.json')")
        self._keys = keys
        self._issuer = issuer
        self._audiences = frozenset((audience,) if isinstance(audience, str) else names_of(audience, "audience")) - {""}
        self._clock = clock
        self._max_cached = max_cached
        self._cached: OrderedDict[bytes, _Cached] = OrderedDict()

    async def verify(self, token: str) -> Verified:
        """Return what a token says, after every check.

        Raises:
            TokenRejectedError: the first check that fails.
        """
        if not token.strip():
            raise TokenRejectedError(Reason.TOKEN_MISSING)
        if len(token) > MAX_TOKEN_BYTES or not token.isascii():
            raise TokenRejectedError(Reason.TOKEN_MALFORMED)
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cached.get(digest)
        if cached is not None and await self._still_valid(cached):
            self._cached.move_to_end(digest)
            return cached.verified
        self._cached.pop(digest, None)
        parts = _Parts.read(token)
        try:
            cached = await self._checked(parts)
        except TokenRejectedError as error:
            raise parts.described(error.reason) from error.__cause__
        self._keep(digest, cached)
        return cached.verified

    async def _still_valid(self, cached: _Cached) -> bool:
        """Whether the key of a token that was valid is still in use, and the token's time is not over."""
        now = self._clock.now().timestamp()
        begun = cached.verified.not_before is None or now >= cached.verified.not_before
        if not begun or now >= cached.verified.expires_at:
            return False
        key = await self._find(cached.key.kid, cached.algorithm)
        return key is not None and key.digest == cached.key.digest

    async def _checked(self, parts: _Parts) -> _Cached:
        algorithm, kid = parts.header.get("alg"), parts.header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            _refuse(Reason.ALG_NOT_ALLOWED)
        if "crit" in parts.header:
            _refuse(Reason.VERIFICATION_FAILED)  # an extension that must be understood; none is
        key = await self._find(kid, algorithm) if isinstance(kid, str) and kid else None
        if key is None:
            _refuse(Reason.UNKNOWN_KEY)
        _check_signature(parts, key, algorithm)
        claims = parts.claims()
        if claims is None:
            _refuse(Reason.TOKEN_MALFORMED)
        self._check_claims(claims)
        return _Cached(key, algorithm, _principal(claims))

    async def _find(self, kid: str, algorithm: str) -> VerificationKey | None:
        try:
            return await self._keys.find(kid, algorithm)
        except KeySetError as error:
            raise TokenRejectedError(Reason.VERIFICATION_FAILED) from error

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        if self._issuer and claims.get("iss") != self._issuer:
            _refuse(Reason.ISSUER_MISMATCH)
        if self._audiences and self._audiences.isdisjoint(_texts(claims.get("aud"))):
            _refuse(Reason.AUDIENCE_MISMATCH)
        now = self._clock.now().timestamp()
        expires, begins = _seconds(claims, "exp"), _seconds(claims, "nbf")
        if expires is None or now >= expires:
            _refuse(Reason.TOKEN_EXPIRED)
        if begins is not None and now < begins:
            _refuse(Reason.TOKEN_NOT_YET_VALID)

    def _keep(self, digest: bytes, cached: _Cached) -> None:
        if self._max_cached <= 0:
            return
        self._cached[digest] = cached
        while len(self._cached) > self._max_cached:
            self._cached.popitem(last=False)


class _Parts(msgspec.Struct, frozen=True):
    """A token taken apart: its header as plain data, the bytes of its claims, the signature, and what is signed."""

    header: dict[str, Any]
    payload: bytes
    signature: bytes
    signed: bytes

    @classmethod
    def read(cls, token: str) -> _Parts:
        """Return the parts of a token.

        Raises:
            TokenRejectedError: it is not three parts of base64url, or its header is no JSON object.
        """
        segments = token.split(".")
        if len(segments) != 3:
            _refuse(Reason.TOKEN_MALFORMED)
        header, payload, signature = map(_decode, segments)
        fields = _object(header)
        if fields is None:
            _refuse(Reason.TOKEN_MALFORMED)
        return cls(fields, payload, signature, token.rpartition(".")[0].encode())

    def claims(self) -> dict[str, Any] | None:
        """The claims as plain data; None if they are no JSON object."""
        return _object(self.payload)

    def described(self, reason: Reason) -> TokenRejectedError:
        """Return the error with what the token says of itself."""
        claims = self.claims() or {}
        return TokenRejectedError(
            reason,
            kid=_shown(self.header.get("kid")),
            issuer=_shown(claims.get("iss")),
            subject=_shown(claims.get("sub")),
        )


def _refuse(reason: Reason) -> NoReturn:
    raise TokenRejectedError(reason)


def _decode(segment: str) -> bytes:
    """The bytes of a part; of several spellings of the same bytes only the usual one is taken."""
    if not _SEGMENT.fullmatch(segment) or len(segment) % 4 == 1:
        _refuse(Reason.TOKEN_MALFORMED)
    found = b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_")
    if urlsafe_b64encode(found).rstrip(b"=") != segment.encode():
        _refuse(Reason.TOKEN_MALFORMED)
    return found


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _check_signature(parts: _Parts, key: VerificationKey, algorithm: str) -> None:
    try:
        driver = jwt.get_algorithm_by_name(algorithm)
        is_valid = driver.verify(parts.signed, driver.prepare_key(key.public), parts.signature)
    except Exception as error:
        _log.error("the signature of a token could not be checked: %s", type(error).__name__)
        raise TokenRejectedError(Reason.VERIFICATION_FAILED) from error
    if not is_valid:
        _refuse(Reason.SIGNATURE_INVALID)


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """The time of a claim in seconds since 1970; None if it has none."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(Reason.TOKEN_MALFORMED)
    try:
        return float(value)
    except OverflowError:
        _refuse(Reason.TOKEN_MALFORMED)


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of a claim that is one text or a list of them."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _principal(claims: Mapping[str, Any]) -> Verified:
    tenant, user = _name(claims, "tenant"), _name(claims, "user")
    if not tenant or not user:
        _refuse(Reason.IDENTITY_CLAIM_MISSING)
    scopes = claims.get("scopes")
    words = scopes.split() if isinstance(scopes, str) else _texts(scopes)
    return Verified(
        tenant=tenant,
        user=user,
        session=_name(claims, "session"),
        scopes=tuple(dict.fromkeys(word.strip() for word in words if word.strip())),
        subject=_shown(claims.get("sub")),
        issuer=_shown(claims.get("iss")),
        expires_at=_seconds(claims, "exp") or 0.0,
        not_before=_seconds(claims, "nbf"),
    )


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """The name that a claim holds; '' if it holds none."""
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        return ""
    if _CONTROL.search(value):
        _refuse(Reason.TOKEN_MALFORMED)
    return value


def _shown(value: Any) -> str:
    """What an event and a log show of a text that a stranger wrote."""
    return _CONTROL.sub(" ", value)[:_MOST_SHOWN] if isinstance(value, str) else ""
