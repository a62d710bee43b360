"""What is shown of configurations: one as plain values without secrets, and the JSON Schema of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from harborage.config.durations import spell_duration
from harborage.config.keys import Effect, Form, KeyInfo, Shape, form_of, keys_of
from harborage.config.values import Config
from harborage.secrets import MASK, Secret

_SECRET_NAMES: Final = frozenset(
    {"api_key", "apikey", "token", "password", "secret", "client_secret", "private_key", "signing_key"}
)
_DURATION: Final = r"^[-+]?(0|([0-9]+(\.[0-9]+)?(h|ms|us|µs|m|s))+)$"


def masked(value: Any, name: str = "") -> Any:
    """Return a configuration, or a part of it, as plain values: every secret is `***`, or empty if it is not set."""
    match value:
        case Secret():
            return str(value)
        case str():
            return MASK if value and name.lower() in _SECRET_NAMES else value
        case timedelta():
            return spell_duration(value)
        case msgspec.Struct():
            return {key: masked(getattr(value, key), key) for key in value.__struct_fields__}
        case Mapping():
            return {key: masked(one, str(key)) for key, one in value.items()}
        case tuple() | list():
            return [masked(one, name) for one in value]
        case _:
            return value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `harborage.yaml`, for editors: names, types, choices, ranges, defaults and texts."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "harborage.yaml"}
    return head | _struct(Config)


def _struct(struct: type[msgspec.Struct]) -> dict[str, Any]:
    properties = {info.name: _property(info) for info in keys_of(struct).values()}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _property(info: KeyInfo) -> dict[str, Any]:
    form, key = form_of(info.type), info.key
    made = _form(form)
    text = key.text if key.effect is Effect.APPLIED else f"{key.text} It has no effect in this version."
    made["description"] = text
    if form.shape in (Shape.INT, Shape.FLOAT):
        bounds = {"minimum": key.least, "exclusiveMinimum": key.above, "exclusiveMaximum": key.below}
        made |= {name: bound for name, bound in bounds.items() if bound is not None}
    if form.shape not in (Shape.STRUCT, Shape.SECRET) and info.default is not None:
        made["default"] = masked(info.default)
    return made


def _form(form: Form) -> dict[str, Any]:
    match form.shape:
        case Shape.STRUCT:
            return _struct(form.item)
        case Shape.LIST:
            return {"type": ["array", "null"], "items": _form(form_of(form.item))}
        case Shape.MAP:
            inner = {} if form.item is Any else _form(form_of(form.item))
            return {"type": ["object", "null"], "additionalProperties": inner}
        case Shape.ANY:
            return {}
        case Shape.BOOL:
            return {"type": ["boolean", "null"]}
        case Shape.INT:
            return {"type": ["integer", "null"]}
        case Shape.FLOAT:
            return {"type": ["number", "null"]}
        case Shape.DURATION:
            return {"anyOf": [{"type": "string", "pattern": _DURATION}, {"const": 0}, {"type": "null"}]}
        case Shape.TEXT if form.choices:
            return {"enum": [*form.choices, None]}
        case Shape.TEXT | Shape.SECRET:
            return {"type": ["string", "number", "boolean", "null"]}
