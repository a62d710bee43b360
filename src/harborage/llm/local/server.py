"""llama.cpp's own server in this process: on a free port of the loopback address, with a key, without a web page.

Blocking and synchronous; the driver runs it beside the event loop. It knows files and ports, and nothing of prompts.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import os
import secrets
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from harborage.errors import MissingExtraError
from harborage.llm.local.weights import LocalServerError

T = TypeVar("T")

_MODULE: Final = "xllamacpp"
_WHAT: Final = "the embedded model"
_WAIT_S: Final = 60.0
_SILENT: Final = -1
# How much of earlier prompts the server may keep beside the current one.
_PROMPT_CACHE_MIB: Final = 256


def check_installed() -> None:
    """Accept a Python that has the server; this does not load it.

    Raises:
        MissingExtraError: the server is not installed.
    """
    if importlib.util.find_spec(_MODULE) is None:
        raise MissingExtraError("local", _WHAT)


def default_threads() -> int:
    """Return one core fewer than this process may use: threads that wait for each other stall on a busy machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)


class LocalServer:
    """A model that is served from `start` until `stop`, one call at a time.

    Once it runs, `context_tokens` and `parameters` are the facts of the model.
    """

    def __init__(self, path: Path, *, context_tokens: int, threads: int | None = None, name: str = "local") -> None:
        self.path = path
        self.key = secrets.token_urlsafe(32)
        self.address = ""
        self.context_tokens = context_tokens
        self.parameters = 0
        self._threads = default_threads() if threads is None else threads
        self._name = name
        self._native: Any = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"LocalServer({str(self.path)!r}, {self.address or 'not running'})"

    @property
    def base_url(self) -> str:
        """The address for clients that speak Chat Completions."""
        return f"{self.address}/v1"

    def start(self) -> None:
        """Load the model and listen.

        Raises:
            MissingExtraError: the server is not installed.
            LocalServerError: the file cannot be loaded, or the server does not answer.
        """
        check_installed()
        xllamacpp = importlib.import_module(_MODULE)
        try:
            self._native = xllamacpp.Server(self._settings(xllamacpp))
        except RuntimeError as error:
            raise LocalServerError(
                f"{self.path} cannot be served: it is damaged, is no language model, or does not fit into memory"
            ) from error
        self.address = self._native.listening_address
        try:
            # This request goes through the server's queue. A server that is stopped before it has begun to work on that
            # queue would never end.
            self.context_tokens = self._slots()[0].n_ctx
            self.parameters = self._get("/v1/models", _Models).data[0].meta.n_params
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, IndexError) as error:
            raise LocalServerError(f"the server of {self.path} does not answer: {error}") from error

    def stop(self) -> None:
        """End the server and give back its memory and its port. Stopping twice does nothing.

        Blocks for as long as a call is under way whose connection is open.
        """
        # The last reference to it is what keeps the server alive.
        self._native = None
        self.address = ""

    def _settings(self, xllamacpp: Any) -> Any:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(self.path)
        settings.model_alias = {self._name}
        settings.hostnames = ["127.0.0.1"]
        settings.port = 0
        settings.api_keys = [self.key]
        settings.ui = False
        settings.cors_origins = "null"
        settings.verbosity = _SILENT
        settings.n_ctx = self.context_tokens
        settings.n_parallel = 1
        settings.cache_ram_mib = _PROMPT_CACHE_MIB
        settings.cpuparams.n_threads = self._threads
        settings.cpuparams_batch.n_threads = self._threads
        return settings

    def _slots(self) -> list[_Slot]:
        return self._get("/slots", list[_Slot])

    def _get(self, path: str, type: type[T]) -> T:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=_WAIT_S)
        try:
            connection.request("GET", path, headers={"authorization": f"Bearer {self.key}"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return msgspec.json.decode(body, type=type)


class _Slot(msgspec.Struct):
    """One call that the server can work on."""

    n_ctx: int
    is_processing: bool = False


class _Meta(msgspec.Struct):
    """The facts of a model's file."""

    n_params: int


class _Model(msgspec.Struct):
    meta: _Meta


class _Models(msgspec.Struct):
    """The models that are served: one."""

    data: list[_Model]
