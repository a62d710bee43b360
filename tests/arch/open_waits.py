"""The waits of the package that no time limits where they stand, each with who ends it."""

from __future__ import annotations

from typing import Final

_CALLER: Final = "a wait of the caller's own, who may put a time around it; it ends with the caller's cancellation"
_SHARED: Final = "it is another's work, which is limited itself; the shield keeps it when one of its callers leaves"
_CLOSED: Final = "`aclose` of its owner sets it, or cancels the task in which it stands"
_CUT: Final = "the task was cancelled, and the code in it was left to a crew if it ignores that"
_FLUSH: Final = "a commit, which ends or fails within the limit of its database"
_THREAD: Final = "a call of a database driver in its thread, which ends within the driver's own time"

OPEN_WAITS: Final[dict[str, str]] = {
    "app/hosting.py host": "until the server ends, or the process is told to stop",
    "app/scripts.py _Script.runtime": _SHARED,
    "app/scripts.py _Script._keep": "the crew of the script cancels it when the interpreter ends",
    "app/scripts.py run_to_result": _CALLER,
    "app/served.py Program.probe": "the process was killed, and the system ends it",
    "cli/acp.py _serve": "until the editor closes the pipe, or the process is told to stop",
    "cli/editor/turn.py Turn._follow": "the editor cancels the turn, and the turn its run",
    "cli/keyboard.py _run": "the person ends the editor",
    "cli/prompt.py read_message": "the person sends a line, or leaves with Ctrl-D",
    "cli/session.py Session._handle_all": "the session cancels it when its run has ended",
    "client/following.py _end_with_run": "the group of the stream cancels it when the stream ends",
    "concurrency.py together": "each part has the limits of its caller, and is cancelled with it",
    "concurrency.py Crew.join": "callers put a time around it where the crew's work has none",
    "concurrency.py Crew.aclose": "without a grace it is asked of crews whose work ends with its cancellation",
    "events/subscription.py Subscription.__anext__": "the reader ends it: `cancel`, or leaving the loop; or the bus",
    "events/writer.py EventWriter.wait_until_written": _FLUSH,
    "llm/chain/accounting.py Metered.complete": _SHARED,
    "llm/chain/accounting.py Metered.load_prices": _SHARED,
    "llm/google/__init__.py GoogleDriver._stream": "the transport's `first_s` and `idle_s` cut the request below it",
    "llm/local/driver.py LocalDriver.close": "each call was interrupted; a start of the server has a limit",
    "llm/local/driver.py LocalDriver._opened": _SHARED,
    "runtime/chat.py Chat.send": _CALLER,
    "runtime/durable/inbox.py Inbox.wait_for_event": "the run that waits ends it: its deadline, its cancel, its worker",
    "runtime/durable/launching.py Launcher.start": _SHARED,
    "runtime/durable/leased_record.py LeasedRecord._wait_for_flush": _FLUSH,
    "runtime/durable/mailbox.py Mailbox.wait_for_answers": "each is a commit; the crew of the run cancels them",
    "runtime/durable/outbox.py Outbox.flush_all": _FLUSH,
    "runtime/durable/outbox.py Outbox._wait_for_write": _FLUSH,
    "runtime/durable/performer.py LocalPerformer._follow": _CUT,
    "runtime/durable/race.py _Race.run": "the loop interrupts it: a control, the deadline, the end of a branch",
    "runtime/durable/race.py _outwait": _CUT,
    "runtime/durable/stored.py StoredEngine.serve": "the store's sign of life sets it, or its task ends",
    "runtime/durable/stored.py StoredEngine._poll": "its timer ends it, after `recheck` at the latest",
    "runtime/durable/stored.py StoredEngine._supersede": _CUT,
    "runtime/durable/stored.py StoredEngine._perform": _FLUSH,
    "runtime/durable/upkeep.py Upkeep.refresh_on_change": _CLOSED,
    "runtime/effects/approval/answering.py WaitingCall.wait": "the answer, its deadline, or the end of the run",
    "runtime/effects/approval/gate.py ApprovalGate.run_guarded": "as WaitingCall.wait",
    "runtime/effects/dependencies.py _Opened._keep": _CLOSED,
    "runtime/effects/questions.py Questions.ask": "the answer, the deadline of the question, or the end of the run",
    "runtime/effects/steering.py _propagate_cancel": "HardCancel.wait gives the hook up when its time is over",
    "runtime/run_loop.py RunLoop._execute": "HardCancel.wait gives the hook up when its time is over",
    "server/auth/keys.py UrlKeys._end_of_read": "the read ends within FETCH_WITHIN_S",
    "server/families/run_copies.py _while_there": "the client closes its connection, or the server stops",
    "server/open_requests.py OpenRequests.idle": "the grace of the server is around it",
    "server/services.py Call.gone": "the request that asks cancels it",
    "state/postgres/driver.py Connector.connect": _SHARED,
    "store/port.py keep_alive": "the worker cancels it when it leaves",
    "store/postgres/notifier.py Notifier.aclose": "the notice is one statement, within the limit of the database",
    "store/postgres/writing.py Writing.commit": _FLUSH,
    "store/postgres/writing.py Writing.aclose": _FLUSH,
    "store/sqlite/threads.py Lane.open": _THREAD,
    "store/sqlite/threads.py Lane.aclose": _THREAD,
    "tasks/ends.py Watch.wait": _CALLER,
    "tasks/ends.py GroupWatch.completion": _CALLER,
    "tasks/ends.py RetainTurnWaiter.group_id": _CALLER,
    "tasks/registry.py InProcessTaskRegistry.wait_ended": _CALLER,
    "tasks/trees.py Children.of": _SHARED,
    "tools/mcp/connection.py Connection._live": _CLOSED,
    "tools/mcp/pool.py Pool._turn": "the limit of the tool call is around it",
}
