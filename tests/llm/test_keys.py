"""Where a key comes from, and that it goes nowhere else."""

from __future__ import annotations

import pytest

from harborage.llm import ConfigSnapshot, InvalidConfigError, MissingAPIKeyError, resolve_key
from tests.kit.tables import each_row

SECRET = "sk-very-secret-0123456789"


def cfg(api_key: str = "") -> ConfigSnapshot:
    """A configuration with this setting."""
    return ConfigSnapshot(provider="acme", api_key=api_key)


def test_a_key_may_be_given_itself() -> None:
    """What is set is the key; the usual variable is not looked at."""
    assert resolve_key(cfg(SECRET), "ACME_KEY", {"ACME_KEY": "other"}) == SECRET


def test_a_setting_may_name_a_variable() -> None:
    """`env.NAME` is the value of that variable, and of no other."""
    assert resolve_key(cfg("env.MINE"), "ACME_KEY", {"MINE": SECRET, "ACME_KEY": "other"}) == SECRET
    with pytest.raises(MissingAPIKeyError, match="no API key for acme: set the environment variable MINE") as caught:
        resolve_key(cfg("env.MINE"), "ACME_KEY", {"ACME_KEY": SECRET})
    assert (caught.value.provider, caught.value.variable) == ("acme", "MINE")


def test_unset_the_usual_variable_counts() -> None:
    """Of several the first that holds something; the error names the first of them."""
    usual = ("FIRST", "SECOND")
    assert resolve_key(cfg(), usual, {"FIRST": " ", "SECOND": SECRET}) == SECRET
    with pytest.raises(MissingAPIKeyError, match="FIRST"):
        resolve_key(cfg(), usual, {})


def test_without_any_variable_the_setting_is_named() -> None:
    """A provider without a usual variable needs the setting."""
    with pytest.raises(MissingAPIKeyError, match=r"set llm\.api_key"):
        resolve_key(cfg(), environ={})


def test_the_process_is_asked_when_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment of its own the function reads the process's."""
    monkeypatch.setenv("ACME_KEY", SECRET)
    assert resolve_key(cfg(), "ACME_KEY") == SECRET


def test_white_space_around_a_key_is_dropped() -> None:
    """A line break at the end of a file is not part of a key."""
    assert resolve_key(cfg(f" {SECRET}\n")) == SECRET
    assert resolve_key(cfg(), "ACME_KEY", {"ACME_KEY": f"{SECRET}\n"}) == SECRET


@each_row("broken", [f"{SECRET} {SECRET}", f"{SECRET}\nx", f"“{SECRET}”", f"{SECRET}\0"])
@each_row("is_variable", [True, False])
def test_what_cannot_be_a_key_is_refused_unseen(broken: str, is_variable: bool) -> None:
    """The error names the place and never the value."""
    with pytest.raises(InvalidConfigError, match="ACME_KEY" if is_variable else r"llm\.api_key") as caught:
        resolve_key(cfg() if is_variable else cfg(broken), "ACME_KEY", {"ACME_KEY": broken})
    assert SECRET not in str(caught.value)


def test_a_variable_needs_a_name() -> None:
    """`env.` alone is a mistake, not a key."""
    with pytest.raises(InvalidConfigError, match=r"write env\.NAME"):
        resolve_key(cfg("env."))


def test_a_configuration_does_not_show_its_key() -> None:
    """A snapshot may end up in a log."""
    assert SECRET not in repr(cfg(SECRET))
