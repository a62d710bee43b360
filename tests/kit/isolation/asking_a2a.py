"""What the principals ask over A2A: tasks of their own and of others, by their ids and in lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.kit.isolation.served import Reach, ServedTenants, is_within
from tests.kit.isolation.told import Request, Told, owner_of, told

if TYPE_CHECKING:
    from tests.kit.wire import Reply


async def _call(tenants: ServedTenants, method: str, params: dict[str, Any]) -> Reply:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await tenants.wire.post("", body, who=tenants.caller, scopes=tenants.scopes, path="/v1/a2a")


def _message(text: str, **more: str) -> dict[str, Any]:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
    return {"message": message, "configuration": {"returnImmediately": True}}


async def _start(tenants: ServedTenants) -> Told:
    """Start a task in the caller's own context."""
    me = tenants.caller
    text = f"{tenants.luck.choice(('look', 'ask', 'say'))}: {tenants.value(me)}"
    reply = await _call(tenants, "SendMessage", _message(text, contextId=me.session_id))
    if "result" in reply.json:
        tenants.note("run", me, reply.json["result"]["task"]["id"])
    await tenants.settle()
    return told(reply)


def _of_task(method: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        task = tenants.any_id("run")
        while task in tenants.staying:
            task = tenants.any_id("run")
        before = {row.run_id: (row.who, row.status) for row in await tenants.runs()}
        params = _message("yes", taskId=task) if method == "SendMessage" else {"id": task}
        reply = await _call(tenants, method, params)
        if method == "CancelTask" and "result" in reply.json:
            tenants.ending.add(task)
        await tenants.settle()
        after = {row.run_id: (row.who, row.status) for row in await tenants.runs()}
        owner = owner_of(tenants, "run", task)
        is_own = is_within(Reach.USER, tenants.caller, owner)
        wrong = f"{method} was answered for a task of {owner}" if "result" in reply.json and not is_own else ""
        if not is_own and before.get(task) != after.get(task):
            wrong = f"{method} moved a task of {owner}"
        return told(reply, Reach.USER, writes=Reach.USER, wrong=wrong)

    return ask


async def _list(tenants: ServedTenants) -> Told:
    """List the tasks of the caller, in any context that somebody has."""
    luck = tenants.luck
    params: dict[str, Any] = {"includeArtifacts": True, "pageSize": luck.choice((0, 3, 100))}
    if luck.random() < 0.5:
        params["contextId"] = tenants.other().session_id
    reply = await _call(tenants, "ListTasks", params)
    own = [row for row in await tenants.runs() if is_within(Reach.USER, tenants.caller, row.who)]
    found = reply.json["result"]
    counted = len([row for row in own if params.get("contextId") in (None, row.who.session_id)])
    wrong = "" if found["totalSize"] == counted else f"{found['totalSize']} tasks, in the record {counted}"
    return told(reply, Reach.USER, wrong=wrong)


OF_A2A: Final[dict[str, Request]] = {
    "a2a.start": _start,
    "a2a.list": _list,
    **{f"a2a.{method}": _of_task(method) for method in ("GetTask", "SendMessage", "CancelTask")},
}
"""By name."""
