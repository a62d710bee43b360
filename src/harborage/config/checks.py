"""What a single value of a configuration must look like: each check returns what is wrong with it, or "". Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

BUILT_IN_TOOLS: Final = (
    "artifact_fetch",
    "clock.now",
    "declarative_action",
    "skill_get",
    "skill_search",
    "text.echo",
    "tool_get",
    "tool_search",
)
JWT_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
RETRY_CLASSES: Final = ("transient", "timeout", "5xx", "permanent")
EFFECTS: Final = ("pure", "read", "write", "external", "stateful")
TOOLKITS: Final = ("coder",)
NATIVE_PROVIDERS: Final = frozenset(
    {"openai", "azure", "anthropic", "bedrock", "cohere", "vertex", "mistral", "ollama", "groq", "sgl", "parasail",
     "perplexity", "cerebras", "gemini", "openrouter", "elevenlabs", "huggingface", "nebius", "xai", "replicate",
     "vllm", "runway", "fireworks"}
)  # fmt: skip

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TYPES: Final = ("string", "integer", "number", "boolean", "[]string")
_MOST_PORT: Final = 65_535


def near(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known word that is most like `word`; "" if none is."""
    found = get_close_matches(word.lower(), [*known], n=1)
    return f"did you mean {found[0]}?" if found else ""


def host_port(text: str) -> str:
    """An address to listen at, such as 127.0.0.1:8080 or [::1]:8080; port 0 takes a free one."""
    host, colon, port = text.rpartition(":")
    is_plain = bool(host) and not any(map(str.isspace, host)) and (":" not in host or host.startswith("["))
    if not colon or not is_plain or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MOST_PORT:
        return "must be host:port, such as 127.0.0.1:8080"
    return ""


def _parts(text: str) -> tuple[str, str, str] | None:
    """The scheme, host and rest of an absolute address; None if it is none."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return None
    if any(map(str.isspace, text)) or not host:
        return None
    rest = f"{parts.path}?{parts.query}" if parts.query or "?" in text else parts.path
    return parts.scheme.lower(), host, f"{rest}#" if "#" in text else rest


def web_address(text: str) -> str:
    """An address of http or https."""
    parts = _parts(text) if text else None
    is_good = not text or (parts is not None and parts[0] in {"http", "https"})
    return "" if is_good else "must be an http or https address"


def safe_address(text: str) -> str:
    """An https address; http is for the loopback alone."""
    if why := web_address(text):
        return why
    parts = _parts(text) if text else None
    if parts is not None and parts[0] == "http" and parts[1] not in _LOOPBACK:
        return "must be an https address, since its host is not the loopback"
    return ""


def origin(text: str) -> str:
    """An origin of web pages: scheme and host, and perhaps a port. A single / may follow."""
    parts = _parts(text)
    if parts is None or parts[0] not in {"http", "https"} or "@" in text:
        return "must be an http or https origin, such as https://console.example"
    return "" if parts[2] in {"", "/"} else "must be an origin alone, without a path, query or fragment"


def not_blank(text: str) -> str:
    """A text with more than spaces in it."""
    return "" if text.strip() else "must not be blank"


def each_not_blank(texts: Iterable[str]) -> str:
    """Texts that all have more than spaces in them."""
    return "" if all(text.strip() for text in texts) else "must hold no blank entry"


def _each_of(values: Iterable[str], known: tuple[str, ...]) -> str:
    for one in values:
        if one not in known:
            hint = near(one, known)
            return f"has {one!r}, which is none of {', '.join(known)}{f'; {hint}' if hint else ''}"
    return ""


def jwt_algorithms(values: Iterable[str]) -> str:
    """Asymmetric algorithms that tokens may be signed with."""
    return _each_of(values, JWT_ALGORITHMS)


def built_in_tools(values: tuple[str, ...]) -> str:
    """Names of built-in tools, each once."""
    return _each_of(values, BUILT_IN_TOOLS) or ("" if len({*values}) == len(values) else "names a tool twice")


def retry_classes(values: Iterable[str]) -> str:
    """Classes of failures after which a call is tried again."""
    return _each_of(values, RETRY_CLASSES)


def toolkits(value: str) -> str:
    """A toolkit that comes with Harborage."""
    return _each_of((value,), TOOLKITS)


def tool_effects(values: dict[str, str]) -> str:
    """What tools do, by their names."""
    return _each_of(values.values(), EFFECTS)


def tool_fields(values: dict[str, str]) -> str:
    """The fields of a tool's input or output, and their types."""
    return _each_of(values.values(), _TYPES)


def variable_name(text: str) -> str:
    """The name of an environment variable, without a prefix."""
    if text.startswith(("env.", "env:")):
        return "must be the variable's name alone, without env."
    return "" if not text or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) else "must be the name of a variable"


def allowed_host(values: Iterable[str]) -> str:
    """Hosts, each with a port or with the usual ones; `*.` stands for every name below one."""
    for one in values:
        host = one.removeprefix("*.")
        is_host = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", host) and ("." in host or ":" in one)
        if not is_host and host_port(host):
            return f"has {one!r}, which is no host:port, such as 127.0.0.1:8931 or *.corp.example"
    return ""
