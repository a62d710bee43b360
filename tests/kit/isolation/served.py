"""Many principals of one server: what each has there, what the record says of all of them, and what may be seen.

The record is read whole and told apart here, by no filter of the store or of the server: so counts, too, have a value
that they must have.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from harborage import Agent, Runtime, tool
from harborage.artifacts.files import FileArtifactStore
from harborage.events import Event, EventType, MemoryIdentityRejectedPayload, RuntimeWarningPayload
from harborage.identity import Identity, Quadruple
from harborage.llm import CompleteRequest, CompleteResponse, Usage
from harborage.planner import PauseReason
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import NO_TIME
from harborage.protocol.wire.flows import FlowStatus, FlowTrigger
from harborage.protocol.wire.mcp import Discovered, Probed, ServerState, ServerView, SignInBegun
from harborage.server.application import Server
from harborage.server.flows import FlowRun, FlowSpec
from harborage.server.mcp_servers import ServerDetails
from harborage.store import LIVE, EventQuery, EventRow, PauseQuery, PauseStatus, RunQuery, RunRow
from harborage.tasks import SpawnRequest, TaskKind
from harborage.testing.llm import calls_tools, says, user_text
from tests.kit.isolation.tenants import Tenants
from tests.kit.served import token_of
from tests.kit.wire import HeaderGate, Reply, Wire, caller_headers

if TYPE_CHECKING:
    from harborage.memory import SessionMemory
    from harborage.server.services import Caller
    from harborage.state.storage import Storage

MARK: Final = re.compile(r"canary-\d+-")
FLOW: Final = "research"
_EVERY: Final = 10_000
_SETTLES_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.005
_PROMPT_TOKENS: Final = 3
_MOST_MARKS: Final = 40
_ENDING: Final = frozenset({"CANCEL"})
_WAKING: Final = frozenset({"CANCEL", "APPROVE", "REJECT", "RESUME"})
_OPEN: Final = PauseQuery(statuses=(PauseStatus.OPEN,), limit=_EVERY)


class Reach(StrEnum):
    """Whose things an answer may show."""

    NOBODY = "nobody"
    SESSION = "session"
    USER = "user"
    TENANT = "tenant"
    ALL = "all"


def is_within(reach: Reach, me: Identity, other: Identity) -> bool:
    """Whether what is another's may be shown to me."""
    match reach:
        case Reach.NOBODY:
            return False
        case Reach.SESSION:
            return me == other
        case Reach.USER:
            return (me.tenant_id, me.user_id) == (other.tenant_id, other.user_id)
        case Reach.TENANT:
            return me.tenant_id == other.tenant_id
        case Reach.ALL:
            return True


class Seen(NamedTuple):
    """One event of the record."""

    who: Identity
    type: str
    at: int
    payload: Mapping[str, Any]


class EchoLLM:
    """Answers with every mark that its prompt holds, so that an answer shows what the model was shown.

    A goal that says `look` has a tool called first, one that says `ask` one that a person must approve.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the next answer of a run."""
        whole = repr(request.messages)
        said = user_text(request).rpartition("goal:")[2]
        if not any(message.tool_calls for message in request.messages):
            for word, name in (("look", "look"), ("ask", "refund"), ("stay", "stay")):
                if word in said:
                    return _counted(calls_tools((name, {"text": said.strip()[:200]})))
        return _counted(says(" ".join(dict.fromkeys(MARK.findall(whole)))[: _MOST_MARKS * 20] or "nothing"))

    async def close(self) -> None:
        """There is nothing to close."""


def _counted(answer: CompleteResponse) -> CompleteResponse:
    usage = Usage(prompt_tokens=_PROMPT_TOKENS, completion_tokens=1, total_tokens=_PROMPT_TOKENS + 1)
    return msgspec.structs.replace(answer, usage=usage)


@tool(effects="read")
async def look(text: str) -> str:
    """Look something up."""
    return f"found {text}"


@tool(effects="external", approval="always")
async def refund(text: str) -> str:
    """Do what a person must approve."""
    return f"refunded {text}"


@tool(effects="read", timeout=100_000)
async def stay(text: str) -> str:
    """Go on until the run is cancelled."""
    await asyncio.Event().wait()
    return text


class KeptFlows:
    """One flow; each principal has runs of it."""

    def __init__(self) -> None:
        self.kept: list[FlowRun] = []

    def add(self, run_id: str, who: Identity, output: str) -> FlowRun:
        """Keep a run that has ended."""
        now = datetime.now(UTC)
        run = FlowRun(
            run_id=run_id,
            flow=FLOW,
            who=who,
            status=FlowStatus.SUCCEEDED,
            trigger=FlowTrigger.USER,
            started_at=now,
            ended_at=now,
            requests=1,
            output=output,
        )
        self.kept.insert(0, run)
        return run

    async def specs(self) -> Sequence[FlowSpec]:
        return [FlowSpec(name=FLOW)]

    async def runs(self, flow: str, tenants: Sequence[str]) -> Sequence[FlowRun]:
        return [one for one in self.kept if one.flow == flow and one.who.tenant_id in tenants]

    async def find_run(self, run_id: str) -> FlowRun | None:
        return next((one for one in self.kept if one.run_id == run_id), None)

    async def start(self, flow: str, inputs: Mapping[str, Any], who: Identity) -> FlowRun:
        return self.add(f"flow-{len(self.kept)}", who, str(inputs.get("text", "")))


class _Mail:
    """A server that shows for whom it was asked."""

    def __init__(self, mark: str) -> None:
        self.view = ServerView(
            name="mail",
            transport="http",
            url_or_command=f"https://{mark}.example",
            state=ServerState.ONLINE,
            last_discovery_at=NO_TIME,
        )
        self._mark = mark

    async def details(self) -> ServerDetails:
        return ServerDetails(view=self.view)

    async def discover(self) -> Discovered:
        return Discovered(discovery_id=self._mark, tool_count=0, resource_count=0, prompt_count=0)

    async def probe(self) -> Probed:
        return Probed(ok=True, latency_ms=1, error=self._mark)

    async def trust_raw_html(self, trusted: bool) -> None:
        pass

    async def sign_in(self, principal_id: str) -> SignInBegun:
        return SignInBegun(authorize_url=f"https://{self._mark}.example/{principal_id}", state="s")

    async def sign_out(self, principal_id: str) -> bool:
        return True


class MarkedServers:
    """For every principal one server, with its mark."""

    def __init__(self, marks: Mapping[Identity, str]) -> None:
        self._marks = marks

    async def list(self, who: Identity) -> Sequence[ServerView]:
        return [_Mail(self._marks.get(who, "nobody")).view]

    async def find(self, who: Identity, name: str) -> _Mail | None:
        return _Mail(self._marks.get(who, "nobody")) if name == "mail" else None


class ClaimsIssuer:
    """Signs nothing: its tokens show their claims."""

    def issue(self, caller: Caller) -> tuple[str, datetime]:
        return token_of(caller.who, *caller.raw_scopes), datetime(2030, 1, 1, tzinfo=UTC)


class ServedTenants(Tenants):
    """An open server, and what each principal has made there: everybody knows the ids of all.

    `left` has the ids that somebody else than their owner has named in an event of its own, `staying` those of the runs
    that go on all the time, `ending` those of the runs that were cancelled.
    """

    def __init__(self, principals: int, luck: random.Random, *, folder: Path, storage: Storage | None = None) -> None:
        super().__init__(principals, luck, storage)
        self._folder = folder
        self.flows = KeptFlows()
        self.scopes: tuple[str, ...] = ()
        self.policies: dict[str, str] = {}
        self.events: list[Seen] = []
        self.fresh: list[Seen] = []
        self.left: set[str] = set()
        self.staying: set[str] = set()
        self.ending: set[str] = set()
        self._read = 0
        self._server: Server | None = None
        self._files: FileArtifactStore | None = None

    async def aclose(self) -> None:
        """Close the runtime and what it was given."""
        await super().aclose()
        files, self._files = self._files, None
        if files is not None:
            await files.aclose()

    async def open(self) -> None:
        """Open a runtime and serve it; one that is open is closed before."""
        await self.aclose()
        agent = Agent("talker", model=EchoLLM(), tools=[look, refund, stay], memory="truncation")
        self._files = await FileArtifactStore.open(self._folder)
        storage = "memory:" if self.storage is None else self.storage
        self._runtime = await Runtime([agent], storage=storage, artifacts=self._files).__aenter__()
        self._server = Server(
            self._runtime,
            gate=HeaderGate(),
            issuer=ClaimsIssuer(),
            mcp=MarkedServers(self.marks),
            flows=self.flows,
        )

    @property
    def server(self) -> Server:
        """The server that is open now."""
        assert self._server is not None
        return self._server

    @property
    def wire(self) -> Wire:
        """A client of it."""
        return Wire(self.server)

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def post(self, method: str, body: Mapping[str, Any], *, who: Identity | None = None) -> Reply:
        """Post as the caller, with its scopes."""
        return await self.wire.post(method, body, who=who or self.caller, scopes=self.scopes)

    def headers(self) -> dict[str, str]:
        """The headers of the caller."""
        return caller_headers(self.caller, *self.scopes)

    @property
    def is_admin(self) -> bool:
        """Whether the caller's token is an admin's."""
        return TokenScope.ADMIN in self.scopes

    @property
    def is_scoped(self) -> bool:
        """Whether the caller's token has a scope."""
        return bool(self.scopes)

    async def tell(self, who: Identity, run_id: str = "") -> Any:
        """Publish an event of this principal's, of a run where one is named."""
        payload = RuntimeWarningPayload(self.value(who))
        return await self.runtime.bus.publish(Event(EventType.RUNTIME_WARNING, who.with_run(run_id), payload))

    @property
    def last_value(self) -> str:
        """The value that was made last."""
        return f"-{self._count}"

    @property
    def memory(self) -> SessionMemory:
        """What the sessions remember."""
        memory = self.runtime.parts.agents.first.context_providers.memory
        assert memory is not None
        return memory

    # ── The record ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def settle(self) -> None:
        """Return once no run moves: each has ended or waits for a person."""
        async with asyncio.timeout(_SETTLES_WITHIN_S):
            calm = 0
            while calm < 2:  # runs and pauses are not read at one moment, so that one look may miss a change
                calm = 0 if await self._moves() else calm + 1
                await asyncio.sleep(_LOOK_S)

    async def _moves(self) -> bool:
        live = (await self.runtime.parts.store.runs(RunQuery(statuses=LIVE, limit=_EVERY))).rows
        if not live:
            return False
        open_pauses = (await self.runtime.parts.store.pauses(_OPEN)).rows
        waiting = {row.run_id for row in open_pauses if not row.answering}
        # What comes for a run whose call is to be approved waits, unless it is the answer, or ends the run.
        resumable = {row.run_id for row in open_pauses if row.reason != PauseReason.APPROVAL_REQUIRED}
        for row in live:
            if row.run_id in self.staying:
                continue
            # One that was cancelled has taken the control before it ends, and its pause is open until then.
            if row.run_id not in waiting or row.run_id in self.ending:
                return True
            unread = await self.runtime.parts.store.controls(row.run_id) if row.unread else []
            moving = _WAKING if row.run_id in resumable else _ENDING
            if any(one.type in moving for one in unread):
                return True
        return False

    async def runs(self) -> list[RunRow]:
        """Every run of everybody."""
        rows: list[RunRow] = []
        query = RunQuery(limit=_EVERY)
        while True:
            page = await self.runtime.parts.store.runs(query)
            rows += page.rows
            if page.cursor is None:
                return rows
            query = msgspec.structs.replace(query, after=page.cursor)

    async def read_events(self) -> list[Seen]:
        """Read what was stored since the last time; `events` has all of it, `fresh` that of one request."""
        nobody = Quadruple("none", "none", "none", "")
        await self.runtime.bus.publish(Event(EventType.RUNTIME_WARNING, nobody, RuntimeWarningPayload("")))
        found: list[EventRow] = []
        while rows := await self.runtime.parts.store.events(EventQuery(after=self._read, limit=1_000)):
            self._read = rows[-1].sequence
            found += rows
        seen = [Seen(row.who, row.type, row.at, msgspec.json.decode(row.data).get("payload") or {}) for row in found]
        new = [one for one in seen if one.who.tenant_id != "none"]
        self.events += new
        self.fresh += new
        return new

    def late(self) -> set[Identity]:
        """Whose runs took in `fresh` a control that their owner had sent before: what they do then is its own doing."""
        found: set[Identity] = set()
        for one in self.fresh:
            by = one.payload.get("By") if one.type.startswith("control.") else None
            who = one.who
            if by == {"TenantID": who.tenant_id, "UserID": who.user_id, "SessionID": who.session_id}:
                found.add(who)
        return found - {self.caller}

    def counted(self, reach: Reach, *types: str, tool: str = "") -> int:
        """How many events of these types the record has of those within reach of the caller."""
        return sum(
            is_within(reach, self.caller, one.who)
            and (not types or one.type in types)
            and (not tool or one.payload.get("ToolName") == tool)
            for one in self.events
        )

    # ── The first things ──────────────────────────────────────────────────────────────────────────────────────────────

    async def fill(self) -> None:
        """Let everybody have some of everything."""
        for who in self.principals:
            self.caller, self.scopes = who, ()
            for word in ("look", "ask"):
                await self.start(who, word)
            await self.settle()
            await self.upload(who)
            await self.tell(who)
            await self._tell_of_memory(who)
            await self._stay(who)
            run_id = f"flow-{who.tenant_id}-{who.user_id}-{who.session_id}"
            self.flows.add(run_id, who, self.value(who))
            self.note("flow run", who, run_id)
            session = f"spare-{self.value(who)}"
            self.note("session", who, session)
            await self.runtime.sessions.open(session, Identity(who.tenant_id, who.user_id, session))
        await self.settle()
        async with asyncio.timeout(_SETTLES_WITHIN_S):
            while self.counted(Reach.ALL, "tool.invoked", tool="stay") < len(self.staying):
                await self.read_events()
        for who in self.principals:
            for item in await self._remembered(who):
                self.note("memory", who, item)
        for row in (await self.runtime.parts.store.pauses(_OPEN)).rows:
            self.note("pause", row.who, row.token)
        await self.read_events()

    async def _tell_of_memory(self, who: Identity) -> None:
        payload = MemoryIdentityRejectedPayload(operation="get", reason="missing")
        await self.runtime.bus.publish(Event(EventType.MEMORY_IDENTITY_REJECTED, who.with_run(""), payload))

    async def _stay(self, who: Identity) -> None:
        """Let a run of a principal go on, and one in the background."""
        asked = SpawnRequest(identity=who.with_run(""), kind=TaskKind.BACKGROUND, query=f"goal: {self.value(who)} stay")
        self.staying.add((await self.runtime.tasks.spawn(asked)).id)
        run = await self.runtime.start(f"goal: {self.value(who)} stay", who=who)
        self.staying.add(run.id)

    async def start(self, who: Identity, word: str, **more: Any) -> Reply:
        """Start a run."""
        body = {"query": f"goal: {self.value(who)} {word}", "description": self.value(who), **more}
        reply = await self.wire.post("start", body, who=who, scopes=self.scopes)
        if reply.status == 200 and not reply.json["reused"]:
            self.note("run", who, reply.json["task_id"])
        return reply

    async def upload(self, who: Identity) -> Reply:
        """Store a file whose content, name and tag are marked."""
        body = {
            "bytes": base64.b64encode(self.value(who).encode()).decode(),
            "opts": {"filename": f"{self.value(who)}.txt", "mime_type": "text/plain", "tags": [self.value(who)]},
        }
        reply = await self.wire.post("artifacts.put", body, who=who)
        if reply.status == 200:
            self.note("artifact", who, reply.json["ref"]["id"])
        return reply

    async def _remembered(self, who: Identity) -> list[str]:
        reply = await self.wire.post("memory.list", {"filter": {"session_ids": [who.session_id]}}, who=who)
        return [item["key"] for item in reply.json.get("items", ())]

    def other(self) -> Identity:
        """Any principal; mostly one that differs from the caller in one part alone."""
        part = self.luck.choice((0, 1, 2, None))
        near = [one for one in self.principals if part is not None and differing(one, self.caller) == [part]]
        return self.luck.choice(near or self.principals)


def differing(one: Identity, other: Identity) -> list[int]:
    """Which parts of two identities differ, by their number."""
    pairs = zip(_parts(one), _parts(other), strict=True)
    return [number for number, (a, b) in enumerate(pairs) if a != b]


def _parts(who: Identity) -> tuple[str, str, str]:
    return who.tenant_id, who.user_id, who.session_id
