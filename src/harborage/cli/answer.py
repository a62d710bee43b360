"""`harborage answer`: what a run waits to hear, or what became of a call, from any terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out

__all__ = ["answer"]

_RUN = (
    "Which one: the whole token of the question. At a terminal also a run, or the beginning of either: the question "
    "is shown then, before anything is sent."
)
_TEXT = "The answer; of a call that was interrupted, what came of it."
_RESULT = "What came of a call that was interrupted, as JSON."
_DONE = "The call had acted, and gave nothing."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says. `result` is JSON, "" where none is given."""

    text: str
    result: str
    is_done: bool


def answer(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *text: Annotated[str, Parameter(help=_TEXT)],
    result: Annotated[str, Parameter(help=_RESULT, show_default=False)] = "",
    done: Annotated[bool, Parameter(help=_DONE, negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Answer the question of a run, or resolve an interrupted call.

    A run that asked goes on with the words. Of a call that was under way when its
    process died they say what came of it, as does --result for what is no text,
    and --done where nothing came of it; 'approve' has such a call made again,
    'reject' leaves its outcome unknown. The answer is kept with the run, like
    theirs.

    Exit codes:
      0  the answer is kept
      1  the answer was refused, another came first, or the database refused
      2  wrong use: no such run, nothing to answer, not confirmed, no JSON
    """
    url, said = storage_url(storage, os.environ), _Said(text=" ".join(text).strip(), result=result, is_done=done)
    if sum((bool(said.text), bool(said.result), said.is_done)) != 1:
        sys.stderr.write("harborage: give one answer: harborage answer RUN TEXT, or --result JSON, or --done\n")
        return 2
    return carry_out(lambda: _answer(url, run.strip(), said), debug=debug)


async def _answer(url: str, wanted: str, said: _Said) -> int:
    from harborage.cli.address import addressed, asked, what_now
    from harborage.cli.questions import is_doubt, is_gate
    from harborage.runtime.steering.controls import ControlType

    async with addressed(url, wanted) as to:
        question = to.question("answer")
        if is_gate(question):
            way = f"harborage approve {question.token}, or reject"
            return _wrong(f"{asked(question)} needs a yes or a no: {way}")
        if not is_doubt(question):
            if not said.text:
                return _wrong(f"only a call has a result; answer in words: harborage answer {question.token} TEXT")
            payload: dict[str, object] = {"message": said.text}
        else:
            try:
                result = msgspec.json.decode(said.result) if said.result else said.text or None
            except msgspec.DecodeError as error:
                return _wrong(f"--result: that is not JSON: {error}")
            payload = {"token": question.token, "acted": True, "result": result}
        to.confirm(question, "harborage answer")
        await to.deliver(question, ControlType.RESUME, payload)
        sys.stdout.write(f"answered: {asked(question)}; {what_now(to.record)}\n")
    return 0


def _wrong(why: str) -> int:
    sys.stderr.write(f"harborage: {why}\n")
    return 2
