"""Sets of keys: what is accepted, and when a file or an address is read again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from harborage.server.auth.keys import FileKeys, KeySetError, StaticKeys, UrlKeys, is_loopback, parse_key_set
from harborage.testing.clock import FakeClock, settle
from tests.kit.signing import key_set, public_jwk, segment
from tests.kit.tables import each_row

ES = public_jwk("ES256")
SMALL_RSA = {"kty": "RSA", "kid": "small", "e": "AQAB", "n": segment(b"\xc1" + bytes(126) + b"\x01")}


def test_each_kind_of_key_verifies_its_own_algorithms() -> None:
    """RSA three or the one that it declares, a curve its one."""
    keys = parse_key_set(
        key_set(
            public_jwk("RS256", "r"),
            public_jwk("RS256", "r512", alg="RS512"),
            *(public_jwk(name, name) for name in ("ES256", "ES384", "ES512")),
            public_jwk("ES256", "declared", alg="ES256", use="sig", key_ops=["verify"]),
        ),
        "keys.json",
    )
    found = {kid: sorted(one[0].algorithms) for kid, one in keys.by_kid.items()}
    assert found == {
        "r": ["RS256", "RS384", "RS512"],
        "r512": ["RS512"],
        "ES256": ["ES256"],
        "ES384": ["ES384"],
        "ES512": ["ES512"],
        "declared": ["ES256"],
    }
    assert keys.left_out == ()
    assert keys.find("r512", "RS256") is None
    assert keys.find("nobody", "RS256") is None


def test_two_keys_of_one_id_are_told_apart_by_their_kind() -> None:
    """As an issuer may have one of each."""
    keys = parse_key_set(key_set(public_jwk("RS256", "k"), public_jwk("ES256", "k")), "keys.json")
    rsa, ec = keys.find("k", "RS256"), keys.find("k", "ES256")
    assert rsa is not None
    assert ec is not None
    assert rsa.digest != ec.digest


@each_row(
    "entry, why",
    [
        ({**ES, "kid": None}, "no kid"),
        ({name: value for name, value in ES.items() if name != "kid"}, "no kid"),
        ({**ES, "use": "enc"}, "not for signatures"),
        ({**ES, "key_ops": ["encrypt"]}, "not for signatures"),
        ({**ES, "alg": "ES384"}, "not one of its kind"),
        ({**ES, "alg": "HS256"}, "not one of its kind"),
        ({**public_jwk("RS256"), "alg": "PS256"}, "not one of its kind"),
        ({**ES, "crv": "secp256k1"}, "its kind is not"),
        (
            {"kty": "OKP", "crv": "Ed25519", "kid": "o", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
            "its kind is not",
        ),
        ({"kty": ["RSA"], "kid": "o"}, "its kind is not"),
        ({**ES, "x": "AAAA"}, "cannot be read"),
        ({**ES, "x": ES["y"]}, "cannot be read"),
        ({**ES, "x": 5}, "cannot be read"),
        ({"kty": "RSA", "kid": "o", "n": "!", "e": "AQAB"}, "cannot be read"),
        (SMALL_RSA, "bits; use 2048"),
    ],
)
async def test_a_key_that_cannot_be_used_is_left_out(
    entry: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others of its set work; the log names it, and a set of such keys alone is refused."""
    with pytest.raises(KeySetError, match=f"keys.json: the set has no usable key.*{why}"):
        parse_key_set(key_set(entry), "keys.json")
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        keys = StaticKeys(key_set(entry, public_jwk("ES256", "good")), "keys.json")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["keys.json"]
    assert why in caplog.text
    assert await keys.find("good", "ES256") is not None
    assert await keys.find("k1", "ES256") is None


@each_row(
    "text, fix",
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 5000, "no JSON"),
        (b"[]", "an object with a list of keys"),
        (b'{"keys": {}}', "an object with a list of keys"),
        (b'{"keys": ["k"]}', "an object with a list of keys"),
        (b'{"keys": []}', "needs an RSA or EC public key with a kid"),
        (msgspec.json.encode(ES), "write it as a set"),
        (b"-----BEGIN PUBLIC KEY-----\n", "PEM"),
        (key_set({**ES, "d": "c2VjcmV0"}), "private part"),
        (key_set({"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}), "private part"),
        (key_set(ES, {**public_jwk("RS256", "r"), "p": "c2VjcmV0"}), "private part"),
    ],
)
def test_what_is_no_set_of_public_keys_is_refused_with_the_fix(text: bytes, fix: str) -> None:
    """The file is named; nothing of a secret is."""
    with pytest.raises(KeySetError, match=fix) as raised:
        parse_key_set(text, "keys.json")
    assert str(raised.value).startswith("keys.json: ")
    assert "c2VjcmV0" not in str(raised.value)


# ── A file ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """At the next token; written in place or replaced."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set())
    keys = FileKeys(file)
    await keys.open()
    assert await keys.find("k1", "ES256") is not None
    assert await keys.find("k2", "ES256") is None
    file.write_bytes(key_set(ES, public_jwk("ES256", "k2")))
    assert await keys.find("k2", "ES256") is not None
    other = tmp_path / "other.json"
    other.write_bytes(key_set(public_jwk("ES256", "k3")))
    other.replace(file)
    assert await keys.find("k3", "ES256") is not None
    assert await keys.find("k1", "ES256") is None
    await keys.aclose()


async def test_a_file_that_is_not_changed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token costs one look at its time."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set())
    keys = FileKeys(file)
    await keys.open()
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("it was read"))
    assert await keys.find("k1", "ES256") is not None


@each_row("bad", [b"{", b"", b'{"keys": []}', None])
async def test_a_bad_file_leaves_the_last_good_set(
    bad: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once; a good file is used again."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set())
    keys = FileKeys(file)
    await keys.open()
    caplog.clear()
    if bad is None:
        file.unlink()
    else:
        file.write_bytes(bad)
    for _ in range(3):
        assert await keys.find("k1", "ES256") is not None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the keys read before stay in use" in caplog.text
    file.write_bytes(key_set(public_jwk("ES256", "k2")))
    assert await keys.find("k1", "ES256") is None
    assert await keys.find("k2", "ES256") is not None


async def test_a_file_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    """With its name and the fix; once it is good, it is used."""
    file = tmp_path / "keys.json"
    keys = FileKeys(file)
    with pytest.raises(KeySetError, match=r"keys.json: cannot be read: No such file"):
        await keys.open()
    file.write_bytes(b" " * 1_100_000)
    with pytest.raises(KeySetError, match="longer than"):
        await keys.find("k1", "ES256")
    with pytest.raises(KeySetError, match="longer than"):
        await keys.open()
    file.write_bytes(key_set())
    assert await keys.find("k1", "ES256") is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_is_read_once_it_may_be(tmp_path: Path) -> None:
    """Permissions that were given meanwhile are noticed."""
    file = tmp_path / "keys.json"
    file.write_bytes(key_set())
    file.chmod(0)
    keys = FileKeys(file)
    with pytest.raises(KeySetError, match="Permission denied"):
        await keys.open()
    file.chmod(0o600)
    assert await keys.find("k1", "ES256") is not None


# ── An address ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Issuer:
    """What an address answers; an error is raised, and with `hold` each answer waits for it."""

    def __init__(self) -> None:
        self.answer: bytes | Exception = key_set()
        self.reads = 0
        self.hold: asyncio.Event | None = None

    async def __call__(self) -> bytes:
        self.reads += 1
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def of_url(fetch: Callable[[], Awaitable[bytes]], clock: FakeClock) -> UrlKeys:
    """The keys of an address that `fetch` reads."""
    return UrlKeys("https://issuer.example/keys?secret=1", clock=clock, fetch=fetch)


async def test_an_address_is_read_every_five_minutes() -> None:
    """By the first token after that."""
    issuer, clock = Issuer(), FakeClock()
    keys = of_url(issuer, clock)
    await keys.open()
    clock.advance(299.9)
    assert await keys.find("k1", "ES256") is not None
    assert issuer.reads == 1
    issuer.answer = key_set(public_jwk("ES256", "k2"))
    clock.advance(0.1)
    assert await keys.find("k1", "ES256") is None
    assert issuer.reads == 2
    await keys.aclose()


async def test_an_unknown_key_reads_the_address_at_most_every_ten_seconds() -> None:
    """A new key works at once; strangers with invented ids cause few reads."""
    issuer, clock = Issuer(), FakeClock()
    keys = of_url(issuer, clock)
    await keys.open()
    issuer.answer = key_set(ES, public_jwk("ES256", "k2"))
    clock.advance(9.9)
    assert await keys.find("k2", "ES256") is None
    assert issuer.reads == 1
    clock.advance(0.1)
    assert await keys.find("k2", "ES256") is not None
    for index in range(20):
        assert await keys.find(f"x{index}", "ES256") is None
    assert issuer.reads == 2
    await keys.aclose()


async def test_many_requests_share_one_read() -> None:
    """The end of the one that caused it does not end it for the others, and known keys do not wait for it."""
    issuer, clock = Issuer(), FakeClock()
    keys = of_url(issuer, clock)
    await keys.open()
    clock.advance(10)
    issuer.answer, issuer.hold = key_set(ES, public_jwk("ES256", "k2")), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(keys.find("k2", "ES256"))
        await settle()
        others = [group.create_task(keys.find("k2", "ES256")) for _ in range(5)]
        await settle()
        assert await keys.find("k1", "ES256") is not None
        first.cancel()
        await settle()
        issuer.hold.set()
    assert issuer.reads == 2
    assert all(one.result() is not None for one in others)
    await keys.aclose()


@each_row("answer", [OSError("no route"), b"{", key_set({**ES, "d": "c2VjcmV0"})])
async def test_an_address_that_cannot_be_read_leaves_the_last_good_set(
    answer: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read again every ten seconds in the background, and the log names it once, without its query."""
    issuer, clock = Issuer(), FakeClock()
    keys = of_url(issuer, clock)
    await keys.open()
    caplog.clear()
    issuer.answer = answer
    clock.advance(300)
    assert await keys.find("k1", "ES256") is not None
    assert issuer.reads == 2
    issuer.hold = asyncio.Event()
    clock.advance(10)
    assert await keys.find("k1", "ES256") is not None  # although the read hangs
    await settle()
    assert issuer.reads == 3
    issuer.hold.set()
    await settle()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "https://issuer.example/keys" in caplog.text
    assert "secret" not in caplog.text.replace("c2VjcmV0", "secret")
    issuer.answer = key_set(public_jwk("ES256", "k2"))
    clock.advance(10)
    await keys.find("k1", "ES256")
    await settle()
    assert await keys.find("k1", "ES256") is None
    await keys.aclose()


async def test_an_address_that_does_not_answer_at_the_start_is_an_error() -> None:
    """It is tried again ten seconds later."""
    issuer, clock = Issuer(), FakeClock()
    issuer.answer = OSError("no route")
    keys = of_url(issuer, clock)
    with pytest.raises(KeySetError, match=r"https://issuer.example/keys: cannot be read \(OSError\)"):
        await keys.open()
    issuer.answer = key_set()
    with pytest.raises(KeySetError):
        await keys.find("k1", "ES256")
    clock.advance(10)
    assert await keys.find("k1", "ES256") is not None
    await keys.aclose()


async def test_closed_keys_read_no_more() -> None:
    """What they know stays."""
    issuer, clock = Issuer(), FakeClock()
    keys = of_url(issuer, clock)
    await keys.open()
    await keys.aclose()
    clock.advance(1000)
    assert await keys.find("k1", "ES256") is not None
    assert await keys.find("k2", "ES256") is None
    assert issuer.reads == 1


@asynccontextmanager
async def http_server(status: str, body: bytes) -> AsyncIterator[str]:
    """A server on this machine with one answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        writer.write(head.encode() + b"location: /elsewhere\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"


async def test_a_real_address_is_read() -> None:
    """Over HTTP, on this machine."""
    async with http_server("200 OK", key_set()) as url:
        keys = UrlKeys(url)
        await keys.open()
        assert await keys.find("k1", "ES256") is not None
        await keys.aclose()


@each_row(
    "status, body, why",
    [
        ("302 Found", b"", "answered 302, not 200"),
        ("404 Not Found", b"", "answered 404"),
        ("200 OK", b"<html>", "no JSON"),
        ("200 OK", b" " * 1_100_000, "longer than"),
    ],
)
async def test_what_a_real_address_answers_is_named(status: str, body: bytes, why: str) -> None:
    """A redirect is not followed."""
    async with http_server(status, body) as url:
        keys = UrlKeys(url)
        with pytest.raises(KeySetError, match=why):
            await keys.open()
        await keys.aclose()


@each_row(
    "url, why",
    [
        ("keys.json", "no address"),
        ("file:///keys.json", "no address"),
        ("https://", "no address"),
        ("https://[", "no address"),
        ("https://a:b@issuer.example:x/", "no address"),
        ("http://issuer.example/keys", "give an https address"),
        ("http://10.0.0.1/keys", "give an https address"),
    ],
)
def test_an_address_from_which_keys_could_be_exchanged_is_refused(url: str, why: str) -> None:
    """Plain HTTP is for this machine alone."""
    with pytest.raises(KeySetError, match=why):
        UrlKeys(url)


@each_row(
    "host, expected",
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_alone(host: str, expected: bool) -> None:
    """By name or by address."""
    assert is_loopback(host) is expected
