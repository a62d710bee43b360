"""What a run asks a person, as the text of a chat, and the run that the words which come back are for.

A question carries a marker that names its run and its pause. The next request that brings it back goes on with that
run. Who may answer, the identity of the request says; the marker is no secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.runtime.durable.pauses.errors import PauseNotFoundError, PauseScopeMismatchError
from harborage.server.openai.errors import RequestRefusedError
from harborage.server.questions import how_to_answer, question_text

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import Question
    from harborage.runtime.run import Run
    from harborage.server.services import Services

_MARKER: Final = re.compile(r"<!-- harborage:pause (\S{1,200}) (\S{1,200}) -->")


class Mark(msgspec.Struct, frozen=True):
    """Which pause of which run a text asks about."""

    run_id: str
    token: str


def find_mark(text: str) -> Mark | None:
    """Return the last marker in a text."""
    found = _MARKER.findall(text)
    return Mark(*found[-1]) if found else None


def without_marks(text: str) -> str:
    """Return a text without its markers: a model that is shown none can write none under a text of its own."""
    return _MARKER.sub("", text).rstrip() if _MARKER.search(text) else text


def ending_comment(text: str) -> str:
    """Return what ends a comment of HTML that a text leaves open, which would hide the question behind it."""
    return "-->\n\n" if text.rfind("<!--") > text.rfind("-->") else ""


def asking(run_id: str, question: Question, problem: str = "") -> str:
    """Return a question as the text of a chat, with what answers it and the marker of its pause."""
    parts = [problem, question_text(question), how_to_answer(question)]
    return "\n\n".join([*filter(None, parts), f"<!-- harborage:pause {run_id} {question.token} -->"])


async def find_pause(services: Services, run: Run[Any], token: str) -> Pause:
    """Return a pause of a run or of one below it.

    Raises:
        RequestRefusedError: the caller has none of this token.
    """
    try:
        return await services.parts.pauses.status(token, who=run.who)
    except (PauseNotFoundError, PauseScopeMismatchError) as error:
        raise RequestRefusedError(404, "no run of yours asks this", code="pause_not_found") from error


async def find_run(services: Services, who: Identity, run_id: str) -> Run[Any]:
    """Return the handle on a run of the caller.

    Raises:
        RunNotFoundError: there is none.
    """
    return await services.runtime.run(run_id, who=who)
