"""Questions of a server to a person, as the run asks them, and the answers as the server gets them.

On the modern protocol a call returns its questions, and is made again with the answers. Before that the server asks on
the connection while the call hangs, and does not say for which call: so a call that may be asked has its connection
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2
import mcp_types as types

from harborage.tools.addresses import explain_refused_address, is_literal
from harborage.tools.errors import AddressRefusedError
from harborage.tools.guard import AddressGuard
from harborage.tools.inputs import InputAction, InputAnswer, InputNeeded, InputQuestion
from harborage.tools.mcp.errors import MCPRequestError, cleaned
from harborage.tools.mcp.listing import is_deeper

if TYPE_CHECKING:
    from harborage.tools.sources import ToolLimits

_MOST_MESSAGE: Final = 2_000
_MOST_LEVELS: Final = 6
_SECRET: Final = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token|api_?key|private_?key|credential|\bpin\b|otp|cvv|ssn", re.IGNORECASE
)
_FOR_URL: Final = {"type": "boolean", "description": "whether you have done it"}


def question_of(server: str, key: str, request: Any, allow_hosts: Sequence[str] = ()) -> InputQuestion | None:
    """Return what a person is asked for a request of a server; None for one that asks for no person."""
    if not isinstance(request, types.ElicitRequest):
        return None
    params = request.params
    message = f"{server} asks: {cleaned(params.message, _MOST_MESSAGE)}"
    if isinstance(params, types.ElicitRequestURLParams):
        refusal = why_not_visited(params.url, allow_hosts)
        return InputQuestion(key=key, message=message, schema=_FOR_URL, url=params.url, declined=refusal)
    schema: dict[str, Any] = dict(params.requested_schema)
    return InputQuestion(key=key, message=message, schema=schema, declined=why_not_asked(schema))


def why_not_asked(schema: dict[str, Any]) -> str:
    """Return why a form is put to no person; empty when it is."""
    if is_deeper(schema, _MOST_LEVELS):
        return "its form nests too deep"
    properties = schema.get("properties")
    for name, field in (properties if isinstance(properties, dict) else {}).items():
        said = field if isinstance(field, dict) else {}
        if said.get("format") == "password" or _SECRET.search(f"{name} {said.get('title', '')}"):
            return f"its form asks for a secret ({cleaned(str(name), 60)}), which no server gets by a form"
    return ""


def why_not_visited(url: str, allow_hosts: Sequence[str] = ()) -> str:
    """Return why a person is not sent to an address; empty when they are."""
    if urlsplit(url).scheme != "https":
        return "it sends people to an address that is not https"
    try:
        parsed = httpx2.URL(url)
        AddressGuard(allow_hosts=allow_hosts).check(parsed)
        if is_literal(parsed.host) and (why := explain_refused_address(parsed.host, allow_private=bool(allow_hosts))):
            raise AddressRefusedError(parsed.host, why)
    except (AddressRefusedError, httpx2.InvalidURL) as error:
        return f"it sends people to an address that is refused: {cleaned(str(error), 200)}"
    return ""


def needed_of(
    result: Any, server: str, tool: str, *, round: int, limits: ToolLimits, allow_hosts: Sequence[str] = ()
) -> InputNeeded:
    """Return what a call needs before it goes on.

    Raises:
        MCPRequestError: it asks too often, keeps too much, or asks for what nobody can give.
    """
    if round > limits.elicitation_rounds:
        raise MCPRequestError(server, f"{tool}: it has asked {limits.elicitation_rounds} times, the most of one call")
    state = result.request_state or ""
    if len(state.encode("utf-8", "replace")) > limits.request_state_bytes:
        text = f"{tool}: it wants {limits.request_state_bytes:,} bytes and more to be kept while a person is asked"
        raise MCPRequestError(server, text)
    questions: list[InputQuestion] = []
    for key, request in (result.input_requests or {}).items():
        question = question_of(server, key, request, allow_hosts)
        if question is None:
            raise MCPRequestError(server, f"{tool}: it asks for {request.method}, which is off for this server")
        questions.append(question)
    return InputNeeded(source=server, tool=tool, questions=tuple(questions), state=state, round=round)


def response_of(answer: InputAnswer) -> types.ElicitResult:
    """Return an answer as a server gets it."""
    content = answer.content if answer.action is InputAction.ACCEPT and isinstance(answer.content, dict) else None
    return types.ElicitResult(action=answer.action.value, content=content)


def declined_text(answers: tuple[InputAnswer, ...]) -> str:
    """Return why questions were put to no person; empty when all were."""
    return "; ".join(dict.fromkeys(one.declined for one in answers if one.declined))
