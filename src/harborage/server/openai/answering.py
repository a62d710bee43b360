"""What a run asks a person, as the text of a chat, and the run that the words which come back are for.

A question carries a marker that names its run and its pause, signed by the server that asked. The next request that
brings it back goes on with that run. Who may answer, the identity of the request says; the marker is no secret.
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
    from harborage.server.signing import Key, SigningKeys

_MARKER: Final = re.compile(
    r"<!-- harborage:pause (\S{1,200}) (\S{1,200})(?: ([0-9A-Za-z]{1,40})\.([0-9a-f]{64}))? -->"
)
_PURPOSE: Final = "harborage question in a chat"


class Mark(msgspec.Struct, frozen=True):
    """Which pause of which run a text asks about, and the signature of the server that wrote it, by which key."""

    run_id: str
    token: str
    key_id: str = ""
    signature: str = ""

    @property
    def signed(self) -> bytes:
        """What the signature stands for."""
        return msgspec.json.encode((self.run_id, self.token))

    def __str__(self) -> str:
        return f"<!-- harborage:pause {self.run_id} {self.token} {self.key_id}.{self.signature} -->"


def sign_mark(key: Key, run_id: str, token: str) -> Mark:
    """Return the marker of a pause, signed."""
    mark = Mark(run_id, token, key.id)
    return msgspec.structs.replace(mark, signature=key.sign(mark.signed, _PURPOSE).hex())


async def find_mark(keys: SigningKeys, text: str) -> Mark | None:
    """Return the marker with which a text ends, if a server over this store wrote it; None for any other.

    What else may stand in a text is nobody's question: a model that learned of a pause can write about it as it likes.

    Raises:
        StateError: the store refused.
    """
    text = text.rstrip()
    found = next((one for one in _MARKER.finditer(text) if one.end() == len(text)), None)
    if found is None or not found[3]:
        return None
    mark = Mark(*found.groups())
    key = await keys.find(mark.key_id)
    is_ours = key is not None and key.has_signed(mark.signed, _PURPOSE, bytes.fromhex(mark.signature))
    return mark if is_ours else None


def is_shown(text: str, question: Question) -> bool:
    """Whether a text shows a question in full, right before its marker, and nothing hides it from its reader."""
    before, _, _ = text.rstrip().rpartition("<!-- harborage:pause ")
    said = " ".join(before.split())
    asked = " ".join(_asked(question).split())
    return said.endswith(asked) and not ending_comment(said.removesuffix(asked))


def without_marks(text: str) -> str:
    """Return a text without its markers: a model that is shown none can write none under a text of its own."""
    return _MARKER.sub("", text).rstrip() if _MARKER.search(text) else text


def ending_comment(text: str) -> str:
    """Return what ends a comment of HTML that a text leaves open, which would hide the question behind it."""
    return "-->\n\n" if text.rfind("<!--") > text.rfind("-->") else ""


def asking(key: Key, run_id: str, question: Question, problem: str = "") -> str:
    """Return a question as the text of a chat, with what answers it and the marker of its pause."""
    mark = sign_mark(key, run_id, question.token)
    return "\n\n".join([*filter(None, [problem, _asked(question)]), str(mark)])


def _asked(question: Question) -> str:
    return f"{question_text(question)}\n\n{how_to_answer(question)}"


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
