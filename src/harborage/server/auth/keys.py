"""The public keys that verify tokens: sets of a file, an address or a value, and when each is read again.

A set is JSON of the form `{"keys": […]}` (JWKS, RFC 7517). Only RSA keys from 2048 bits and elliptic curve keys of the
three curves are used. A set with a private or a shared key is refused, because its reader could sign tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import jwt
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.errors import HarborageError, error_summary

if TYPE_CHECKING:
    import httpx2

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
"""The algorithms that a token may be signed with."""

CURVES: Final[Mapping[str, str]] = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
"""The one algorithm of each curve."""

MIN_RSA_BITS: Final = 2048
MAX_SET_BYTES: Final = 1024 * 1024
REFRESH_S: Final = 300.0
"""How old the keys of an address may become, in seconds."""
RETRY_S: Final = 10.0
"""How long after a read of an address the next may follow, in seconds."""
FETCH_WITHIN_S: Final = 5.0

_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_log: Final = logging.getLogger("harborage.server.auth")


class KeySetError(HarborageError):
    """A set of keys cannot be used. `source` is the file or the address."""

    def __init__(self, source: str = "", why: str = "") -> None:
        self.source = source
        super().__init__(f"{source}: {why}" if source else why)


class VerificationKey(msgspec.Struct, frozen=True):
    """One public key: its id, the algorithms that it verifies, and a digest by which it is known again."""

    kid: str
    algorithms: frozenset[str]
    public: Any
    digest: bytes


class Keys(msgspec.Struct, frozen=True):
    """The usable keys of one set by id, and why each of the others is not used."""

    by_kid: Mapping[str, tuple[VerificationKey, ...]] = {}
    left_out: tuple[str, ...] = ()

    def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none."""
        for key in self.by_kid.get(kid, ()):
            if algorithm in key.algorithms:
                return key
        return None


class KeySet(Protocol):
    """Public keys, as they are now."""

    async def open(self) -> None:
        """Read the keys for the first time.

        Raises:
            KeySetError: they cannot be read or used; the text says what to do.
        """
        ...

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none.

        Raises:
            KeySetError: no set could be read so far.
        """
        ...

    async def aclose(self) -> None:
        """End what reads the keys."""
        ...


def parse_key_set(text: bytes, source: str) -> Keys:
    """Return the keys of a set; `source` names it in errors.

    Raises:
        KeySetError: it is no set of keys, has a private or shared key, or none that can be used.
    """
    found, left_out = dict[str, tuple[VerificationKey, ...]](), list[str]()
    for index, fields in enumerate(_entries(text, source)):
        name = f"key {fields.get('kid')!r}" if isinstance(fields.get("kid"), str) else f"key {index + 1}"
        if secret := _PRIVATE & fields.keys():
            raise KeySetError(
                source, f"{name} has a private part ({min(secret)}); publish the public half of the key alone"
            )
        key = _read_key(fields)
        if isinstance(key, str):
            left_out.append(f"{name}: {key}")
        else:
            found[key.kid] = (*found.get(key.kid, ()), key)
    if not found:
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise KeySetError(source, f"the set has no usable key{why}; it needs an RSA or EC public key with a kid")
    return Keys(found, tuple(left_out))


def _entries(text: bytes, source: str) -> Iterable[dict[str, Any]]:
    if text.lstrip().startswith(b"-----BEGIN"):
        raise KeySetError(
            source, 'this is PEM; a set of keys is JSON such as {"keys": […]}; see harborage token --help'
        )
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise KeySetError(source, 'this is no JSON; a set of keys looks like {"keys": […]}') from error
    if isinstance(value, dict) and "kty" in value:
        raise KeySetError(source, 'this is one key; write it as a set: {"keys": [KEY]}')
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise KeySetError(source, 'a set of keys is an object with a list of keys: {"keys": […]}')
    return entries


def _read_key(fields: Mapping[str, Any]) -> VerificationKey | str:
    """Return the key, or why it is not used."""
    kid, declared = fields.get("kid"), fields.get("alg")
    if not isinstance(kid, str) or not kid:
        return "it has no kid, so no token can name it"
    operations = fields.get("key_ops", ["verify"])
    if fields.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return "it is not for signatures"
    possible = _algorithms(fields)
    if not possible:
        return "its kind is not RSA, P-256, P-384 or P-521"
    algorithms = possible if declared is None else possible & {declared if isinstance(declared, str) else ""}
    if not algorithms:
        return "its alg is not one of its kind"
    family = "RS256" if fields["kty"] == "RSA" else next(iter(possible))
    try:
        public: Any = jwt.get_algorithm_by_name(family).from_jwk(dict(fields))
    except Exception as error:  # noqa: BLE001 - the texts of its parts may be anything; its set says it is left out
        return f"it cannot be read ({type(error).__name__})"
    if fields["kty"] == "RSA" and public.key_size < MIN_RSA_BITS:
        return f"it has {public.key_size} bits; use {MIN_RSA_BITS} or more"
    spelled = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return VerificationKey(kid, algorithms, public, hashlib.sha256(spelled).digest())


def _algorithms(fields: Mapping[str, Any]) -> frozenset[str]:
    match fields.get("kty"), fields.get("crv"):
        case "RSA", _:
            return frozenset(name for name in ALGORITHMS if name.startswith("RS"))
        case "EC", str(curve) if curve in CURVES:
            return frozenset({CURVES[curve]})
        case _:
            return frozenset()


def _log_left_out(keys: Keys, source: str) -> None:
    for one in keys.left_out:
        _log.warning("%s: not used: %s", source, one)


class StaticKeys:
    """The keys of a value; they never change."""

    def __init__(self, text: bytes, source: str = "the set of keys") -> None:
        self._keys = parse_key_set(text, source)
        _log_left_out(self._keys, source)

    async def open(self) -> None:
        """Do nothing: the keys are there."""

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none."""
        return self._keys.find(kid, algorithm)

    async def aclose(self) -> None:
        """Do nothing."""


_Mark = tuple[int, ...]


class FileKeys:
    """The keys of a file, read again whenever it has changed. A file that cannot be used leaves the last good set."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._mark: _Mark | None = None
        self._keys: Keys | None = None
        self._failure: KeySetError | None = None

    async def open(self) -> None:
        """Read the file.

        Raises:
            KeySetError: it is not there, cannot be read, or is no usable set.
        """
        self._look()
        if self._keys is None and self._failure is not None:
            raise self._failure

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none.

        Raises:
            KeySetError: the file could never be used so far.
        """
        await self.open()
        return None if self._keys is None else self._keys.find(kid, algorithm)

    async def aclose(self) -> None:
        """Do nothing: no file is held open."""

    def _look(self) -> None:
        """Read the file if it is not as it was at the last look."""
        try:
            stat = os.stat(self._path)
            # The inode's change time shows permissions that were given meanwhile.
            mark = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
            if mark == self._mark:
                return
            self._mark = mark
            self._keys = self._read()
            self._failure = None
            _log_left_out(self._keys, str(self._path))
        except OSError as error:
            self._mark = None
            self._fail(KeySetError(str(self._path), f"cannot be read: {error.strerror}; give a readable set of keys"))
        except KeySetError as error:
            self._fail(error)

    def _read(self) -> Keys:
        with self._path.open("rb") as file:
            text = file.read(MAX_SET_BYTES + 1)
        if len(text) > MAX_SET_BYTES:
            raise KeySetError(str(self._path), f"longer than {MAX_SET_BYTES} bytes; that is no set of keys")
        return parse_key_set(text, str(self._path))

    def _fail(self, error: KeySetError) -> None:
        if self._keys is not None and str(error) != str(self._failure):
            _log.error("%s; the keys read before stay in use", error)
        self._failure = error


class UrlKeys:
    """The keys of an address, read again every 5 minutes, and at an unknown id if the last read is 10 s ago.

    An address that cannot be read leaves the last good set, and is read again in the background. `fetch` replaces the
    request, for an address that takes one of another kind.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Timers = SYSTEM_CLOCK,
        fetch: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._source = _checked(url)
        self._clock = clock
        self._client: httpx2.AsyncClient | None = None
        self._fetch = partial(self._request, url) if fetch is None else fetch
        self._keys: Keys | None = None
        self._failure: KeySetError | None = None
        self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._crew = Crew(self._crashed)

    async def open(self) -> None:
        """Read the address.

        Raises:
            KeySetError: it does not answer, or not with a usable set.
        """
        if self._keys is None:
            self._begin(RETRY_S)
            await self._end_of_read()
        if self._keys is None and self._failure is not None:
            raise self._failure

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none.

        Raises:
            KeySetError: the address could never be read so far.
        """
        await self.open()
        if self._begin(REFRESH_S if self._failure is None else RETRY_S) and self._failure is None:
            await self._end_of_read()
        key = self._known(kid, algorithm)
        if key is None:
            self._begin(RETRY_S)
            await self._end_of_read()
            key = self._known(kid, algorithm)
        return key

    async def aclose(self) -> None:
        """End a read in flight and close the connection."""
        await self._crew.aclose()
        if self._client is not None:
            await self._client.aclose()

    def _known(self, kid: str, algorithm: str) -> VerificationKey | None:
        return None if self._keys is None else self._keys.find(kid, algorithm)

    def _begin(self, age_s: float) -> bool:
        """Begin a read if the last was begun `age_s` ago or more; return whether it was."""
        now = self._clock.monotonic()
        if self._crew or self._crew.is_closed or now - self._tried_at < age_s:
            return False
        self._tried_at = now
        self._reading = self._crew.start(self._read(), "keys.read")
        return True

    async def _end_of_read(self) -> None:
        """Wait for the read in flight, which all callers share: the end of one of them does not cancel it."""
        if self._reading is not None and not self._reading.done():
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(FETCH_WITHIN_S):
                text = await self._fetch()
            self._keys = parse_key_set(text, self._source)
            self._failure = None
            _log_left_out(self._keys, self._source)
        except KeySetError as error:
            self._fail(error)
        except TimeoutError:
            self._fail(KeySetError(self._source, f"did not answer within {FETCH_WITHIN_S:g} s; check the address"))
        except Exception as error:  # noqa: BLE001 - whatever a connection raises, the last good set stays
            self._fail(KeySetError(self._source, f"cannot be read ({type(error).__name__}); check the address"))

    def _fail(self, error: KeySetError) -> None:
        if str(error) != str(self._failure):
            _log.error("%s; %s", error, "no token can be verified" if self._keys is None else "the last keys stay")
        self._failure = error

    async def _request(self, url: str) -> bytes:
        import httpx2  # heavy; a set of a file needs none

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=FETCH_WITHIN_S)
        body = bytearray()
        async with self._client.stream("GET", url, headers={"accept": "application/json"}) as response:
            if response.status_code != 200:
                raise KeySetError(self._source, f"answered {response.status_code}, not 200; give the set's own address")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_SET_BYTES:
                    raise KeySetError(self._source, f"longer than {MAX_SET_BYTES} bytes; that is no set of keys")
        return bytes(body)

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.critical("%s: %s ended: %s", self._source, name, error_summary(error))


def _checked(url: str) -> str:
    """Return an address as errors and logs name it, without a query or a password.

    Raises:
        KeySetError: it is none, or keys from it could be changed on their way.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        shown = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError as error:
        raise KeySetError("the address of a set of keys", "it is no address; give one such as https://…") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise KeySetError("the address of a set of keys", "it is no address; give one such as https://…")
    if parts.scheme == "http" and not is_loopback(host):
        raise KeySetError(shown, "keys that travel by http can be exchanged on their way; give an https address")
    return shown


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, or an address that only it has."""
    from ipaddress import IPv6Address, ip_address

    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
