"""`MCP`: a server of the Model Context Protocol as a program or a configuration describes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from harborage.errors import InvalidOptionError, MissingExtraError, at_least, known_options, names_of, one_of
from harborage.secrets import Secret
from harborage.tools.enums import SideEffect
from harborage.tools.mcp.values import RawHTML, Sampling, ServerTransport
from harborage.tools.policy import ToolPolicy

if TYPE_CHECKING:
    from harborage.tools.model import ToolDescriptor
    from harborage.tools.sources import OpenSource, SourceServices

_MEANT: Final = {
    "args": 'command=["program", "argument"]',
    "cmd": "command",
    "cwd": "folder",
    "token": 'auth=Bearer(secret("env:…"))',
    "timeout": "policy=ToolPolicy(timeout_ms=…)",
    "side_effects": "effects",
    "approvals": "approve",
    "environ": "env",
}


class MCP:
    """The tools, resources and prompts of an MCP server: `MCP("files", command=["npx", "server", "."])`, or `url=`.

    What a tool does is said here, not by the server: `effects={"read_file": "read"}`, else a call is `external` and
    never made twice by itself. `idempotent` names tools that act once per idempotency key, `approve` those that a
    person must approve; both are patterns such as "write_*" over the server's own names. `trust_hints` believes the
    server where it says that a tool only reads, or may be called twice. `policy` is how its tools are called,
    `tool_policies` the same for single ones.

    `headers` and `env` are secrets, `auth` is how the server knows the caller. `share_identity` sends it the tenant,
    user and session of each run. `elicitation` lets it ask people, within `elicitation_timeout` where the question
    lives on a connection; `sampling` ("off", "ask", "allow") lets it use the agent's model, for `sampling_tokens` at
    most. `roots` are folders that are named to it. `connections` are those that calls with effects take, one each; 1 is
    for a server that keeps what it knows in its process. `pin` offers no tool that has changed since its first use
    until an admin accepts it. `allow_hosts` are private hosts, as `host:port`, that addresses from the server may name.

    Nothing is started or read before a run needs it.

    Raises:
        InvalidOptionError: a value is none that it can be; the text names it and the fix.
        UnknownOptionError: there is no such option.
        MissingExtraError: the extra `mcp` is not installed.
    """

    __slots__ = (
        "allow_hosts", "approve", "auth", "command", "connections", "effects", "elicitation", "elicitation_timeout",
        "env", "folder", "headers", "idempotent", "keep_alive", "name", "pin", "policy", "raw_html", "roots",
        "sampling", "sampling_tokens", "share_identity", "tool_policies", "transport", "trust_hints", "url",
    )  # fmt: skip

    known: ClassVar[tuple[ToolDescriptor[Any], ...]] = ()
    """No tool is known without asking the server."""

    if not TYPE_CHECKING:  # checkers refuse such names by themselves

        def __new__(cls, *_given: Any, **options: Any) -> Self:
            known_options(options, cls.__slots__, _MEANT)
            return super().__new__(cls)

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str = "",
        transport: ServerTransport | str = ServerTransport.AUTO,
        folder: str = "",
        headers: Mapping[str, Secret] = {},
        env: Mapping[str, Secret] = {},
        auth: Any = None,
        effects: Mapping[str, SideEffect | str] = {},
        idempotent: Sequence[str] | bool = (),
        approve: Sequence[str] = (),
        trust_hints: bool = False,
        share_identity: bool = False,
        pin: bool = False,
        raw_html: RawHTML | str = RawHTML.TEXT,
        elicitation: bool = True,
        elicitation_timeout: timedelta = timedelta(minutes=5),
        sampling: Sampling | str = Sampling.OFF,
        sampling_tokens: int = 1_000,
        roots: Sequence[str] = (),
        connections: int = 4,
        keep_alive: timedelta = timedelta(),
        allow_hosts: Sequence[str] = (),
        policy: ToolPolicy = ToolPolicy(),  # noqa: B008 - a frozen value
        tool_policies: Mapping[str, ToolPolicy] = {},
    ) -> None:
        if not _text(name, "name").strip():
            raise InvalidOptionError("name", name, 'the server\'s name, first: MCP("files", command=[…])')
        if isinstance(idempotent, bool):
            idempotent = ("*",) if idempotent else ()
        given: dict[str, Any] = {
            "name": name.strip(), "transport": one_of(ServerTransport, transport, "transport"),
            "raw_html": one_of(RawHTML, raw_html, "raw_html"), "sampling": one_of(Sampling, sampling, "sampling"),
            "headers": _secrets(headers, "headers"), "env": _secrets(env, "env"), "auth": _auth(auth),
            "effects": {tool: one_of(SideEffect, effect, f"effects[{tool!r}]") for tool, effect in effects.items()},
            "elicitation_timeout": _time(elicitation_timeout, "elicitation_timeout"),
            "sampling_tokens": sampling_tokens, "connections": connections, "keep_alive": keep_alive,
            "policy": policy, "tool_policies": dict(tool_policies),
        }  # fmt: skip
        texts: dict[str, Any] = {"url": url, "folder": folder}
        lists: dict[str, Any] = {
            "command": command, "idempotent": idempotent, "approve": approve, "roots": roots, "allow_hosts": allow_hosts
        }  # fmt: skip
        flags = {
            "trust_hints": trust_hints, "share_identity": share_identity, "pin": pin, "elicitation": elicitation
        }  # fmt: skip
        given |= {option: _text(value, option) for option, value in texts.items()}
        given |= {option: names_of(value, option) for option, value in lists.items()}
        given |= {option: _flag(value, option) for option, value in flags.items()}
        for field, value in given.items():
            object.__setattr__(self, field, value)
        at_least(1, connections, "connections", is_whole=True)
        at_least(1, sampling_tokens, "sampling_tokens", is_whole=True)
        self._check()

    name: str
    command: tuple[str, ...]
    url: str
    transport: ServerTransport
    folder: str
    headers: Mapping[str, Secret]
    env: Mapping[str, Secret]
    auth: Secret | None
    effects: Mapping[str, SideEffect]
    idempotent: tuple[str, ...]
    approve: tuple[str, ...]
    trust_hints: bool
    share_identity: bool
    pin: bool
    raw_html: RawHTML
    elicitation: bool
    elicitation_timeout: timedelta
    sampling: Sampling
    sampling_tokens: int
    roots: tuple[str, ...]
    connections: int
    keep_alive: timedelta
    allow_hosts: tuple[str, ...]
    policy: ToolPolicy
    tool_policies: Mapping[str, ToolPolicy]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"MCP({self.name!r}) does not change; make another one")

    def __repr__(self) -> str:
        return f"MCP({self.name!r})"

    @property
    def is_local(self) -> bool:
        """Whether the server is a program of this machine, spoken to on its standard input and output."""
        return bool(self.command) and self.transport in (ServerTransport.AUTO, ServerTransport.STDIO)

    @property
    def address(self) -> str:
        """Where the server is, as a person is shown it: its address, or its command without what may be secret."""
        return self.url or " ".join(self.command)

    def effect_of(self, tool: str) -> SideEffect | None:
        """What the operator says that a tool does; None where nothing is said."""
        return self.effects.get(tool)

    def may_repeat(self, tool: str) -> bool:
        """Whether the operator says that a tool acts once per idempotency key."""
        return any(fnmatchcase(tool, one) for one in self.idempotent)

    def wants_approval(self, tool: str) -> bool:
        """Whether the operator wants calls of a tool approved."""
        return any(fnmatchcase(tool, one) for one in self.approve)

    @property
    def approval_patterns(self) -> tuple[str, ...]:
        """Patterns of the names in the catalog of tools that a person must approve, before any of them is listed."""
        name = self.name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
        return tuple(f"{name}_{one}{mark}" for one in self.approve for mark in ("", "_??????"))

    def open(self, services: SourceServices) -> OpenSource:
        """Return the open source of its tools; it connects to nothing yet."""
        from harborage.tools.mcp.source import OpenMCP  # loaded by a runtime that has such a server

        return OpenMCP(self, services)

    def _check(self) -> None:
        """Refuse what does not fit together.

        Raises:
            InvalidOptionError: it does not; the text says what to write.
            MissingExtraError: the extra is not installed.
        """
        if bool(self.command) == bool(self.url):
            given = "both" if self.url else "neither"
            text = f"MCP({self.name!r}): give it either command=[…] of a program or url=, not {given}"
            raise InvalidOptionError("command", self.command, message=text)
        if self.transport is ServerTransport.STDIO and not self.command:
            text = f"MCP({self.name!r}): transport='stdio' needs command=[…]"
            raise InvalidOptionError("transport", self.transport, message=text)
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InvalidOptionError("url", self.url, "an address such as 'https://crm.example/mcp'")
        if self.command and (self.headers or self.auth):
            text = f"MCP({self.name!r}): a program takes its secrets as env={{…}}; headers and auth are for url="
            raise InvalidOptionError("headers", "", message=text)
        if self.url and (self.env or self.folder):
            text = f"MCP({self.name!r}): env and folder are for command=; a server at url= takes headers or auth"
            raise InvalidOptionError("env", "", message=text)
        self._check_policies()
        for option, is_asked in (("sampling", self.sampling is not Sampling.OFF), ("pin", self.pin)):
            if is_asked:
                text = f"MCP({self.name!r}): {option} has no effect in this version; leave it out"
                raise InvalidOptionError(option, getattr(self, option), message=text)
        if importlib.util.find_spec("mcp") is None:
            raise MissingExtraError("mcp", f"MCP({self.name!r})")

    def _check_policies(self) -> None:
        for tool, policy in {"*": self.policy, **self.tool_policies}.items():
            if not isinstance(policy, ToolPolicy):
                raise InvalidOptionError(f"tool_policies[{tool!r}]", policy, "a ToolPolicy")
            is_safe = self.effect_of(tool) in (SideEffect.PURE, SideEffect.READ) or self.may_repeat(tool)
            if policy.max_retries and not is_safe:
                ways = f'idempotent=["{tool}"]' + ("" if tool == "*" else f', effects={{"{tool}": "read"}}')
                why = f"retries might make a call of {tool} act twice"
                text = f"MCP({self.name!r}): {why}; declare {ways}, or leave max_retries out"
                raise InvalidOptionError("max_retries", policy.max_retries, message=text)


def _text(value: object, option: str) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError(option, value, "a text")
    return value


def _flag(value: object, option: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOptionError(option, value, "True or False")
    return value


def _time(value: object, option: str) -> timedelta:
    if not isinstance(value, timedelta) or value <= timedelta():
        raise InvalidOptionError(option, value, "a time such as timedelta(minutes=5)")
    return value


def _secrets(given: Mapping[str, Secret], option: str) -> dict[str, Secret]:
    """Accept secrets by name; a value that stands in the code would be in every copy of it.

    Raises:
        InvalidOptionError: one is a plain text.
    """
    if not isinstance(given, Mapping):
        raise InvalidOptionError(
            option, "", message=f'{option}: give secrets by name, such as {{"X": secret("env:X")}}'
        )
    values: Mapping[str, object] = given
    for name, value in values.items():
        if not isinstance(value, Secret):
            variable = name.upper().replace("-", "_")
            text = f'{option}[{name!r}]: give a reference, such as secret("env:{variable}"), not the value'
            raise InvalidOptionError(f"{option}[{name!r}]", "", message=text)
    return dict(given)


def _auth(auth: Any) -> Secret | None:
    """The token that is sent with every request; None without one.

    Raises:
        InvalidOptionError: it is a plain text, or something that cannot be used here.
    """
    if auth is None:
        return None
    token = getattr(auth, "token", auth)
    if not isinstance(token, Secret):
        text = 'auth: give Bearer(secret("env:CRM_TOKEN")); a plain text, or another way to sign in, is not taken here'
        raise InvalidOptionError("auth", "", message=text)
    return token
