"""Files: which one is read, where findings are, deprecated keys, and keys without an effect."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from harborage.config import Category, ConfigNotFoundError, InvalidConfigurationError, default_file, load_config
from harborage.config.durations import parse_duration, spell_duration
from harborage.errors import NotFoundError
from tests.kit.configurations import findings, read, text_of


def places(text: str) -> list[tuple[int, int, str]]:
    """The places of what is wrong with a text, and the keys."""
    return [(one.line, one.column, one.path or one.reason) for one in findings(text.encode())]


def test_all_findings_come_at_once_with_their_places() -> None:
    """One reading tells what is misspelt, what has a wrong form and what breaks a rule, in the order of the file."""
    text = """\
server:
  bind_addr: nowhere
  shutdown_grace_period: 5
identity:
  jwt_algorithms: [ES256, HS256]
  issuer: a
  audience: b
sessions: {idle_ttl: 800h, sweep: 1m}
llm: {driver: mock, timeout: [1]}
"""
    assert places(text) == [
        (2, 3, "server.bind_addr"),
        (3, 26, "server.shutdown_grace_period must be a duration such as 30s, 5m or 24h"),
        (4, 1, "identity"),
        (5, 3, "identity.jwt_algorithms"),
        (8, 12, "sessions.idle_ttl"),
        (8, 28, "there is no key sweep in sessions"),
        (9, 30, "llm.timeout must be a duration such as 30s, 5m or 24h"),
    ]


def test_what_is_absent_has_no_line() -> None:
    """A required key that the file does not have stands at line 0."""
    (one,) = findings(text_of(without="identity.issuer"))
    assert (one.line, one.column, one.path) == (0, 0, "identity.issuer")


def test_items_and_entries_are_found_where_they_stand() -> None:
    """The places of findings in lists and maps are those of the item and of the entry's key."""
    text = text_of().decode() + (
        "tools:\n  custom:\n    - {name: a, description: d}\n    - name: a\n      description: d\n"
        "governance:\n  identity_tiers:\n    free: {max_tokens: -1}\n"
    )
    custom, tier = findings(text.encode())
    assert (custom.path, custom.message.partition(":")[0]) == ("tools.custom[1].name", "config.tools.custom[1].name")
    assert tier.path == 'governance.identity_tiers["free"].max_tokens'
    lines = text.splitlines()
    assert lines[custom.line - 1][custom.column - 1 :].startswith("name: a")
    assert lines[tier.line - 1][tier.column - 1 :].startswith("max_tokens")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("telemetry: 5", "telemetry must be keys and values"),
        ("server: {allowed_origins: one}", "server.allowed_origins must be a list"),
        ("events: {replay_buffer_size: many}", "events.replay_buffer_size must be a whole number"),
        ("events: {replay_buffer_size: '5'}", "events.replay_buffer_size must be a whole number"),
        ("events: {replay_buffer_size: 010}", "events.replay_buffer_size must be a whole number"),
        ("events: {replay_buffer_size: 1.5}", "events.replay_buffer_size must be a whole number"),
        ("server: {cors_dev_allow_any: 1}", "server.cors_dev_allow_any must be true or false"),
        ("project: [a]", "project must be a text"),
        ("runtime: {workers: 4}", "there is no key workers in runtime"),
        ("audit: {driver: x}", "there is no key driver in audit"),
        ("events: {drvier: inmem}", "there is no key drvier in events"),
        ("- a", "the file must be keys and values"),
    ],
)
def test_a_value_of_another_form_is_a_parse_error(value: str, reason: str) -> None:
    """Unknown keys and wrong forms are findings about the text, with a mark."""
    text = (value if value.startswith("-") else text_of().decode() + value).encode()
    (one,) = findings(text)
    assert (one.category, one.reason) == (Category.PARSE, reason)
    assert one.message == f"harborage.yaml: parse: [{one.line}:{one.column}] {reason}"
    assert one.line > 0


def test_deprecated_keys_are_left_out_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Three keys of earlier versions never fail the load; each is logged once, with what replaces it."""
    file = tmp_path / "harborage.yaml"
    old = {"default_max_tokens": 5, "cost_ceiling_usd": {"a": 1}, "rate_limit_tps": [1], "repair_attempts": 1}
    file.write_bytes(text_of({"governance": old}))
    with caplog.at_level(logging.WARNING, logger="harborage.config"):
        assert load_config(file, environ={}).config.governance.repair_attempts == 1
    assert [record.message for record in caplog.records] == [
        f"config.deprecated_field field=governance.{name} replacement=governance.identity_tiers removed_in=v0.x "
        f"source={file}"
        for name in ("default_max_tokens", "cost_ceiling_usd", "rate_limit_tps")
    ]


def test_a_key_without_effect_is_never_accepted_in_silence() -> None:
    """It gets a notice with its place; what would promise something is fatal for a server, and defaults say nothing."""
    loaded = read({"telemetry.otel_endpoint": "http://x.test", "tools.flows": ["a.yaml"]})
    assert [(one.path, one.is_fatal, one.line > 0) for one in loaded.notices] == [
        ("telemetry.otel_endpoint", False, True),
        ("tools.flows", True, True),
    ]
    assert [one.path for one in loaded.fatal_notices()] == ["tools.flows"]
    reload = read({"cli.dev_hot_reload.policy": "cancel"}).notices
    assert [(one.path, one.is_fatal) for one in reload] == [("cli.dev_hot_reload.policy", False)]
    assert read({"telemetry.otel_endpoint": "", "tasks.continuation_hop_limit": 8}).notices == ()


def test_a_file_that_cannot_be_had_is_found(tmp_path: Path) -> None:
    """A missing file is not found; a folder cannot be read."""
    with pytest.raises(ConfigNotFoundError, match="there is no file") as missing:
        load_config(tmp_path / "none.yaml", environ={})
    assert isinstance(missing.value, NotFoundError)
    assert missing.value.findings[0].category is Category.NOT_FOUND
    with pytest.raises(InvalidConfigurationError) as folder:
        load_config(tmp_path, environ={})
    assert folder.value.findings[0].category is Category.READ


def test_the_other_file_counts_where_ours_is_absent(tmp_path: Path) -> None:
    """harbor.yaml is read only beside no harborage.yaml."""
    assert default_file(tmp_path).name == "harborage.yaml"
    (tmp_path / "harbor.yaml").touch()
    assert default_file(tmp_path).name == "harbor.yaml"
    (tmp_path / "harborage.yaml").touch()
    assert default_file(tmp_path).name == "harborage.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("0", timedelta()),
        ("-5s", timedelta(seconds=-5)),
        ("10us", timedelta(microseconds=10)),
        ("5", None),
        ("", None),
        ("5 s", None),
        ("s", None),
        ("1d", None),
        ("1h x", None),
        ("999999999999999h", None),
        ("1s" * 40, None),
    ],
)
def test_durations_have_units(text: str, value: timedelta | None) -> None:
    """A number without a unit is no duration, except 0; what is read is spelled in the same way."""
    assert parse_duration(text) == value
    if value is not None:
        assert parse_duration(spell_duration(value)) == value
