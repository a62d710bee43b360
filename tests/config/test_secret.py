"""Secrets of the configuration: no output shows one, and references lead to their values."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path

import msgspec
import pytest

from harborage.config import Config, ConfigError, Secret, SecretMissingError, load_config, masked
from harborage.config.keys import Shape, form_of, leaves
from tests.kit.configurations import read, text_of

CANARY = "hunter2-canary"


def secret_keys() -> list[tuple[str | int, ...]]:
    """The paths of every key that holds a secret, in samples of their lists and maps."""
    found = []
    for path, info in leaves(Config):
        form = form_of(info.type)
        inner = form_of(form.item) if form.shape is Shape.MAP and form.item is not None else form
        if Shape.SECRET in (form.shape, inner.shape):
            steps = [step if isinstance(step, str | int) else step.name for step in path]
            found.append(tuple(steps) if form.shape is Shape.SECRET else (*steps, "NAME"))
    return found


def nested(path: tuple[str | int, ...], value: object) -> object:
    """The blocks and lists around one value."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value


def test_every_secret_key_is_known() -> None:
    """Each key that the file marks as secret has the type of secrets."""
    names = {".".join(str(step) for step in path) for path in secret_keys()}
    assert {
        "state.dsn", "llm.api_key", "events.state_dsn", "artifacts.dsn", "artifacts.s3_access_key_id",
        "artifacts.s3_secret_access_key", "memory.dsn", "skills.dsn", "tools.mcp_servers.0.headers.NAME",
        "tools.mcp_servers.0.env.NAME", "tools.mcp_servers.0.auth.bearer", "tools.openapi.0.headers.NAME",
        "tools.openapi.0.auth.api_key", "tools.shell.env.NAME",
    } <= names  # fmt: skip


@pytest.mark.parametrize("path", secret_keys(), ids=str)
@pytest.mark.parametrize("is_valid", [True, False])
def test_no_secret_reaches_an_output(
    path: tuple[str | int, ...], is_valid: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the repr, the dump, an error, a notice or a log line of a file, valid or not, has the value of a secret."""
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "harborage.yaml"
    head, *rest = path
    sample = nested(tuple(rest), CANARY if is_valid else [[CANARY]])
    file.write_bytes(text_of({str(head): sample} if head != "llm" else {"llm.api_key": CANARY}))
    shown = []
    try:
        loaded = load_config(file, environ={})
        shown += [repr(loaded), repr(loaded.config), str(masked(loaded.config)), repr(loaded.notices)]
    except ConfigError as error:
        shown += [str(error), repr(error), repr(error.findings)]
    shown += [caplog.text]
    assert not [text for text in shown if CANARY in text]


@pytest.mark.parametrize(
    "line",
    [
        f"*{CANARY}",
        f"&{CANARY} *{CANARY}",
        f"!{CANARY} x",
        f'"{CANARY}\\q"',
        f"'{CANARY}",
        f"{{{CANARY}",
        f"%{CANARY}",
        f"@{CANARY}",
        f"`{CANARY}",
        f"[{CANARY}",
        f"!!{CANARY} x",
        f"{CANARY}: {CANARY}",
    ],
)
def test_a_password_that_is_no_yaml_is_not_quoted_in_what_is_said(line: str, tmp_path: Path) -> None:
    """A secret that the parser stumbles over is not in its message."""
    file = tmp_path / "harborage.yaml"
    file.write_text(f"state:\n  driver: sqlite\n  dsn: {line}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={})
    assert CANARY not in str(caught.value).replace(str(file), "")
    assert CANARY not in repr(caught.value.findings)


def test_names_that_mean_secrets_are_masked_in_free_blocks() -> None:
    """Keys of a planner's own options that are called like secrets are masked, too."""
    shown = masked(read({"planner.extra": {"token": CANARY, "inner": {"password": CANARY}, "size": 3}}).config)
    assert shown["planner"]["extra"] == {"token": "***", "inner": {"password": "***"}, "size": 3}
    assert (shown["state"]["dsn"], shown["llm"]["api_key"]) == ("", "")


def test_a_secret_has_no_other_form() -> None:
    """It cannot be encoded, pickled or printed; a copy is the secret itself."""
    secret = Secret(CANARY)
    assert (str(secret), repr(secret), f"{secret}", repr(Secret())) == ("***", "Secret('***')", "***", "Secret('')")
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert copy.deepcopy([secret])[0] is secret
    assert secret == Secret(CANARY)
    assert secret != CANARY
    assert secret.mask_in(f"a {CANARY} b") == "a *** b"


def test_a_reference_leads_to_its_value(tmp_path: Path) -> None:
    """Variables in both spellings, files beside the configuration, and plain values."""
    (tmp_path / "key").write_text("from a file\n")
    environ = {"KEY": "from a variable"}
    written = ["env:KEY", "env.KEY", "file:key", f"file:{tmp_path / 'key'}", "plain", "postgres://a:b@c/d", "", "a:b"]
    assert [Secret(one).reveal(environ, folder=tmp_path) for one in written] == [
        "from a variable", "from a variable", "from a file", "from a file", "plain", "postgres://a:b@c/d", "", "a:b",
    ]  # fmt: skip


@pytest.mark.parametrize("reference", ["env:NOT_SET", "env:EMPTY", "file:missing", "file:blank", "file:."])
def test_a_reference_that_leads_nowhere_is_refused_by_name(reference: str, tmp_path: Path) -> None:
    """The error names the reference and why."""
    (tmp_path / "blank").write_text(" \n")
    with pytest.raises(SecretMissingError, match=f"the secret {reference} is missing: ") as caught:
        Secret(reference).reveal({"EMPTY": ""}, folder=tmp_path)
    assert caught.value.reference == reference
