"""Every key and default of the file, held against a table; and each key's text."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from harborage.config import Config, json_schema, masked
from harborage.config.keys import Effect, Shape, dotted, form_of, leaves, places
from harborage.secrets import Secret

TABLE = Path(__file__).resolve().parents[1] / "data" / "config_keys.tsv"


def spelled(value: object) -> str:
    """A default as the table writes it."""
    return "" if value is None else str(masked(value) if not isinstance(value, Secret) else value)


def test_the_keys_and_their_defaults_are_those_of_the_table() -> None:
    """No key is added, lost or given another default without its row in tests/data/config_keys.tsv."""
    rows = [f"{dotted(path)}\t{form_of(info.type).shape}\t{spelled(info.default)}" for path, info in leaves(Config)]
    assert rows == TABLE.read_text("utf-8").splitlines()


def test_every_key_and_block_has_a_text_and_says_what_it_does() -> None:
    """The reference and the schema have a sentence for each key, and an effect."""
    for place in places(Config()):
        assert place.info.key.text.endswith("."), place.path
        assert place.info.key.effect in Effect


def test_a_default_keeps_to_the_form_of_its_key() -> None:
    """A default has the type that its key says, and a choice is one of the choices."""
    kinds = {Shape.BOOL: bool, Shape.INT: int, Shape.FLOAT: (int, float), Shape.DURATION: timedelta, Shape.TEXT: str}
    for path, info in leaves(Config):
        form = form_of(info.type)
        if info.default is not None and form.shape in kinds:
            assert isinstance(info.default, kinds[form.shape]), path
        assert not form.choices or info.default in form.choices, path


def test_values_are_frozen() -> None:
    """A configuration that was read does not change."""
    for place in places(Config()):
        if isinstance(place.value, msgspec.Struct):
            assert type(place.value).__struct_config__.frozen, place.path


def test_the_schema_names_every_key() -> None:
    """An editor knows each key: its type, its text, and that no other is allowed."""
    schema = json_schema()
    for path, _ in leaves(Config):
        at = schema
        for step in path:
            match step:
                case str():
                    assert at["additionalProperties"] is False
                    at = at["properties"][step]
                case int():
                    at = at["items"]
                case _:
                    at = at["additionalProperties"]
        assert at["description"], path


def test_the_reference_has_a_heading_for_every_key() -> None:
    """What an operator may write is described, and where it has no effect yet the reference says so."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/configuration.md").read_text("utf-8")
    for path, info in leaves(Config):
        head, section, _ = page.partition(f"\n### {dotted(path)}\n")
        assert section, path
        if info.key.effect is not Effect.APPLIED:
            text = page[len(head) + len(section) :].partition("\n#")[0]
            assert "*no effect yet*" in text or "*refused yet*" in text, path
