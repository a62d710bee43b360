"""`harborage token`: what is signed, the key that is made, and wrong use in one line."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import get_args, get_type_hints

import jwt
import pytest

from harborage.cli import token as command
from harborage.cli.main import main
from harborage.protocol.methods import TokenScope
from harborage.server.auth.keys import FileKeys
from harborage.server.auth.minting import write_new_key
from harborage.server.auth.tokens import TokenVerifier
from tests.kit.tables import each_row


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key, with its public set beside it."""
    file = tmp_path / "harbor.pem"
    write_new_key(file)
    return file


def signed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The token that the command prints: one line on standard output, and nothing else."""
    assert main(["token", *map(str, words)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count("\n") == 1
    return printed.out.strip()


def test_the_token_is_accepted_by_the_public_keys(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its principal, scopes, issuer and audience."""
    words = ("--tenant", "acme", "--user", "ada", "--session", "s-1", "--scope", "admin", "--scope", "console:fleet")
    made = signed(capsys, *words, "--key", key, "--issuer", "us", "--audience", "harbor")
    checked = TokenVerifier(FileKeys(key.with_name("harbor.jwks.json")), issuer="us", audience="harbor")
    found = asyncio.run(checked.verify(made))
    assert (found.tenant, found.user, found.session) == ("acme", "ada", "s-1")
    assert found.scopes == ("admin", "console:fleet")


@each_row("ttl, seconds", [("90s", 90), ("15m", 900), ("1h", 3600), ("7D", 604_800), ("120", 120), ("", 3600)])
def test_a_token_lives_as_long_as_asked(ttl: str, seconds: int, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An hour unless said otherwise; no session and no scope unless given."""
    words = ["--ttl", ttl] if ttl else []
    made = signed(capsys, "--tenant", "acme", "--user", "ada", "--key", key, *words)
    said = jwt.decode(made, options={"verify_signature": False})
    assert said["exp"] - said["iat"] == seconds
    assert said["nbf"] == said["iat"] - 60
    assert set(said) == {"sub", "tenant", "user", "iat", "nbf", "exp"}


def test_a_new_key_says_what_each_file_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with it a token can be signed at once."""
    monkeypatch.chdir(tmp_path)
    assert main(["token", "--new-key", "mine.pem"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "wrote mine.pem, the private key: keep it where only what signs can read it",
        "wrote mine.jwks.json, the public keys: give these to the server",
        "sign: harborage token --tenant TENANT --user USER --key mine.pem",
    ]
    assert stat.S_IMODE(Path("mine.pem").stat().st_mode) == 0o600
    signed(capsys, "--tenant", "acme", "--user", "ada", "--key", "mine.pem")


PRINCIPAL = ["--tenant", "acme", "--user", "ada"]


@each_row(
    "words, said",
    [
        ([], "give --tenant and --user"),
        (["--tenant", "acme", "--key", "KEY"], "give --user"),
        (["--tenant", " ", "--user", "ada", "--key", "KEY"], "give --tenant"),
        (PRINCIPAL, "harborage token --new-key FILE makes one"),
        ([*PRINCIPAL, "--key", "none.pem"], "none.pem: cannot be read: No such file"),
        ([*PRINCIPAL, "--key", "harbor.jwks.json"], "not a set of keys"),
        ([*PRINCIPAL, "--key", "KEY", "--ttl", "0"], "no time up to a year"),
        ([*PRINCIPAL, "--key", "KEY", "--ttl", "1w"], "no time up to a year"),
        ([*PRINCIPAL, "--key", "KEY", "--ttl=-1h"], "no time up to a year"),
        ([*PRINCIPAL, "--key", "KEY", "--ttl", "367d"], "no time up to a year"),
        ([*PRINCIPAL, "--key", "KEY", "--scope", "root"], 'Choose from: "admin", "console:fleet"'),
        (["--new-key", "KEY"], "is there already"),
        (["--new-key", "nowhere/new.pem"], "cannot be written"),
        ([*PRINCIPAL, "--new-key", "other.pem"], "makes a key and signs nothing"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(
    words: list[str], said: str, key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed on standard output, and no file is made."""
    monkeypatch.chdir(key.parent)
    assert main(["token", *(key.name if word == "KEY" else word for word in words)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert sorted(one.name for one in key.parent.iterdir()) == ["harbor.jwks.json", "harbor.pem"]


def test_the_scopes_are_those_of_the_protocol() -> None:
    """The command spells them out, because reading its help must load nothing."""
    choices = get_args(get_args(get_type_hints(command.token)["scope"])[0])
    assert set(choices) == {str(scope) for scope in TokenScope}
