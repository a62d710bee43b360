"""A server without any library, on its standard input, of the protocol of 2025-11-25: it starts at once, and does what
no decent server does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

LOCK = threading.Lock()
ANY: dict[str, Any] = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {"name": "append", "description": "Append a line to a file.", "inputSchema": ANY},
    {"name": "append_and_die", "description": "The same, and end before the answer.", "inputSchema": ANY},
    {"name": "append_and_wait", "description": "The same, and never answer.", "inputSchema": ANY},
    {"name": "wait", "description": "Wait.", "inputSchema": ANY},
    {"name": "hostile", "description": "\x1b[31mRed\x1b[0m text.", "inputSchema": ANY},
    {"name": "environment", "description": "What a variable holds.", "inputSchema": ANY},
    {"name": "long_line", "description": "Answer with so many bytes.", "inputSchema": ANY},
    {"name": "flood", "description": "Send so many notifications.", "inputSchema": ANY},
    {"name": "garbage", "description": "Send a line that is no message, then answer.", "inputSchema": ANY},
    {"name": "nonsense", "description": "Answer with what is no result.", "inputSchema": ANY},
    {"name": "ask", "description": "Ask the person.", "inputSchema": ANY},
    {"name": "grow", "description": "Offer one tool more.", "inputSchema": ANY},
    {"name": "typed", "description": "Has a typed result.", "inputSchema": ANY,
     "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    {"name": "no_type", "description": "Its schema has no type.", "inputSchema": {"properties": {}}},
    {"name": "reads_file", "description": "Refers outside.",
     "inputSchema": {"type": "object", "properties": {"x": {"$ref": "file:///etc/hostname"}}}},
    {"name": "echo_meta", "description": "What came with the call.", "inputSchema": ANY},
]  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {}
ARRIVED = threading.Condition()


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value: Any, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(value)}], **more}


def append(args: dict[str, Any]) -> None:
    with open(args["path"], "a") as file:
        file.write(args["line"] + "\n")


def ask(args: dict[str, Any]) -> Any:
    """Ask, and wait for the answer on the same connection."""
    ask_id = f"ask-{time.monotonic_ns()}"
    params = args.get("params") or {
        "mode": "form",
        "message": args.get("message", "Which size?"),
        "requestedSchema": {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]},
    }
    send({"id": ask_id, "method": args.get("method", "elicitation/create"), "params": params})
    with ARRIVED:
        ARRIVED.wait_for(lambda: ask_id in ANSWERS)
    return ANSWERS[ask_id]


def call(name: str, args: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "append":
            append(args)
            return text("appended")
        case "append_and_die":
            append(args)
            return os._exit(3)
        case "append_and_wait":
            append(args)
            time.sleep(3600)
            return text("waited")
        case "wait":
            time.sleep(args["seconds"])
            return text("waited")
        case "hostile":
            return text("\x1b]0;title\x07 503 timeout: \x1b[2Jgone", isError=True)
        case "environment":
            return text(os.environ.get(args["name"], ""))
        case "long_line":
            return text("x" * args["bytes"])
        case "flood":
            for number in range(args["count"]):
                token = meta.get("progressToken")
                if token is not None:
                    note = {"progressToken": token, "progress": number + 1, "total": args["count"], "message": "more"}
                    send({"method": "notifications/progress", "params": note})
                send({"method": "notifications/tools/list_changed"})
            return text("flooded")
        case "garbage":
            with LOCK:
                sys.stdout.buffer.write(b"\xff\xfe not a message\n" + b"[" * 5000 + b"\n")
                sys.stdout.flush()
            return text("all the same")
        case "nonsense":
            return {"content": "s3cret-canary is no list"}
        case "ask":
            return text(json.dumps(ask(args)))
        case "grow":
            TOOLS.append({"name": f"grown_{len(TOOLS)}", "description": "New.", "inputSchema": ANY})
            send({"method": "notifications/tools/list_changed"})
            return text("grown")
        case "typed":
            return text("typed", structuredContent={"n": args.get("n")})
        case "echo_meta":
            return text(json.dumps(meta))
        case _:
            return text("there is no such tool", isError=True)


def answer(message: dict[str, Any]) -> None:
    call_id, params = message["id"], message.get("params") or {}
    match message["method"]:
        case "initialize":
            version = params["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "plain", "version": "1"}
            send(
                {
                    "id": call_id,
                    "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info},
                }
            )
        case "tools/list":
            send({"id": call_id, "result": {"tools": TOOLS}})
        case "ping":
            send({"id": call_id, "result": {}})
        case "tools/call":
            result = call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})
            send({"id": call_id, "result": result})
        case _:
            send({"id": call_id, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        elif "id" in message:
            with ARRIVED:
                ANSWERS[message["id"]] = message.get("result") or {"error": message.get("error")}
                ARRIVED.notify_all()


if __name__ == "__main__":
    main()
