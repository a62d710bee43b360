"""The environment over a file, and overrides in code: which variables count, and what they may hold."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harborage.config import Config, InvalidConfigurationError, with_overrides
from harborage.config.environment import settings_of
from harborage.config.keys import Shape
from harborage.errors import UnknownOptionError
from tests.kit.configurations import found, paths, read

EXAMPLES = {
    Shape.TEXT: "a text",
    Shape.SECRET: "env:NAME",
    Shape.BOOL: "true",
    Shape.INT: "7",
    Shape.FLOAT: "0.5",
    Shape.DURATION: "7s",
    Shape.LIST: "a, ,b",
}


def test_each_plain_key_has_a_variable_that_sets_it() -> None:
    """Every key outside of lists and maps is set by its variable, or refuses it by name."""
    settings = settings_of(Config)
    assert len(settings) > 90
    for name, setting in settings.items():
        text = (setting.form.choices or (EXAMPLES.get(setting.form.shape, "x"),))[-1]
        findings = found(environ={f"HARBORAGE_{name}": text})
        own = [one for one in findings if one.path == ".".join(setting.path) and "cannot be set" in one.reason]
        assert bool(own) is not setting.is_settable, name
        assert not [one for one in findings if "must be " in one.reason and "must be one of" not in one.reason and
                    one.source == f"HARBORAGE_{name}" and one.reason.startswith("must be a ")], name  # fmt: skip


def test_no_two_keys_share_a_variable() -> None:
    """The names of variables are unambiguous."""
    settings = settings_of(Config)
    assert len({one.path for one in settings.values()}) == len(settings)


def test_a_variable_wins_over_the_file() -> None:
    """What the environment sets counts, and the key remembers where it is from."""
    loaded = read({"telemetry.log_level": "warn"}, environ={"HARBORAGE_TELEMETRY_LOG_LEVEL": "debug"})
    assert loaded.config.telemetry.log_level == "debug"
    assert loaded.origin(("telemetry", "log_level")).source == "HARBORAGE_TELEMETRY_LOG_LEVEL"


def test_the_older_prefix_counts_where_ours_is_absent() -> None:
    """HARBOR_ sets a key too, unless HARBORAGE_ does."""
    both = {"HARBOR_PROJECT": "old", "HARBORAGE_PROJECT": "new"}
    assert read(environ={"HARBOR_PROJECT": "old"}).config.project == "old"
    assert read(environ=both).config.project == "new"


def test_a_list_is_split_at_commas() -> None:
    """Blank parts are left out, and nothing at all empties a list."""
    name = "HARBORAGE_SERVER_ALLOWED_ORIGINS"
    assert read(environ={name: "https://a.test, ,https://b.test"}).config.server.allowed_origins == (
        "https://a.test",
        "https://b.test",
    )
    emptied = read({"server.allowed_origins": ["https://a.test"]}, environ={name: ""})
    assert emptied.config.server.allowed_origins == ()


def test_a_variable_that_is_set_to_nothing_clears_a_text() -> None:
    """Set but empty counts: a required text is then missing."""
    assert paths(environ={"HARBORAGE_IDENTITY_ISSUER": ""}) == ["identity.issuer"]


@pytest.mark.parametrize(
    ("variable", "value", "path"),
    [
        ("LLM_CORRECTIONS_ENABLED", "true", "llm.corrections.enabled"),
        ("PLANNER_PARALLEL_TOOL_CALLS", "false", "planner.parallel_tool_calls"),
        ("GOVERNANCE_IDENTITY_TIERS", "{}", "governance.identity_tiers"),
        ("TOOLS_MCP_SERVERS", "[]", "tools.mcp_servers"),
        ("EVENTS_IDLE_TIMEOUT", "5", "events.idle_timeout"),
        ("EVENTS_REPLAY_BUFFER_SIZE", "many", "events.replay_buffer_size"),
        ("EVENTS_REPLAY_BUFFER_SIZE", "", "events.replay_buffer_size"),
        ("SERVER_CORS_DEV_ALLOW_ANY", "maybe", "server.cors_dev_allow_any"),
        ("SERVER_BIND_ADR", "x:1", "server.bind_addr"),
    ],
)
def test_a_variable_that_cannot_set_its_key_is_found(variable: str, value: str, path: str) -> None:
    """Maps, optional booleans, lists of objects, wrong forms and mistyped names are findings that name the variable."""
    (one,) = found(environ={f"HARBORAGE_{variable}": value})
    assert (one.path, one.line) == (path, 0)
    assert f"HARBORAGE_{variable}" in one.message
    assert value not in {"maybe", "many"} or value not in one.message


def test_other_variables_are_not_ours_to_judge() -> None:
    """Variables of commands, and those that an orchestrator sets, change nothing."""
    others = {
        "HARBORAGE_STORAGE": "x",
        "HARBOR_DEV_TOKEN": "x",
        "HARBORAGE_SERVER_PORT": "tcp://10.0.0.1:80",
        "PATH": "",
    }
    assert found(environ=others) == []


def test_overrides_take_dotted_keys_and_leave_the_original() -> None:
    """Texts are read as those of the environment, and the rules are held again."""
    loaded = read()
    changed = with_overrides(loaded, {"sessions.idle_ttl": "1h", "telemetry.log_level": "error"})
    assert changed.config.sessions.idle_ttl == timedelta(hours=1)
    assert loaded.config.sessions.idle_ttl == timedelta(hours=24)
    with pytest.raises(InvalidConfigurationError, match=r"config\.sessions\.idle_ttl: must be at most.*override"):
        with_overrides(loaded, {"sessions.idle_ttl": "800h"})
    with pytest.raises(InvalidConfigurationError, match="must be a duration"):
        with_overrides(loaded, {"sessions.idle_ttl": "soon"})
    with pytest.raises(UnknownOptionError, match=r"did you mean sessions\.idle_ttl"):
        with_overrides(loaded, {"sessions.idle_tt": "1h"})
    with pytest.raises(UnknownOptionError, match="a text cannot set it"):
        with_overrides(loaded, {"tools.mcp_servers": "x"})
