"""A server as a configuration says: its agents, key set, origins and log, and new values of them while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harborage.app.configured import Deployment, Verifying, configured, server_options, verifying
from harborage.app.hosting import host
from harborage.app.served import Program
from harborage.app.service_logs import ServiceLog
from harborage.app.site import Site
from harborage.app.target import TargetError
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.config.reloading import ConfigReloader, Reloaded, ReloadRefused
from harborage.errors import HarborageError, error_reason
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.keys import FileKeys, UrlKeys
from harborage.server.auth.tokens import TokenVerifier
from harborage.server.listening import listen, parse_address

if TYPE_CHECKING:
    from harborage.app.target import Service
    from harborage.config.loader import Loaded
    from harborage.runtime.host import Runtime
    from harborage.server.auth.keys import KeySet, VerificationKey
    from harborage.server.auth.tokens import Verified
    from harborage.server.console_files import ConsoleFiles
    from harborage.server.listening import Address

_LOGGER: Final = logging.getLogger("harborage.config")


class ConfiguredProgram(Program):
    """A program whose agents get their models and limits from a configuration. `loaded` is the one that counts."""

    def __init__(self, target: str, folder: Path, loaded: Loaded, *, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(target, folder)
        self._target_name = target
        self._environ = environ
        self.loaded = loaded

    def deployment(self) -> Deployment:
        """Return what a server of the program is made of, as its file is now.

        Raises:
            TargetError: it cannot be read, holds no agent, or makes a runtime of its own.
            AgentNotReadyError: an agent cannot work on this machine.
            InvalidConfigurationError: the configuration asks for what this version cannot do.
        """
        service = self.read()
        if service.runtime is not None:
            why = "it makes a Runtime itself, which a configuration cannot change; offer its agents instead"
            raise TargetError(self._target_name, why)
        self.check(service)
        for agent in service.agents:
            if agent.check is not None:
                agent.check()
        return configured(self.loaded, service.agents, environ=self._environ)

    def check(self, service: Service) -> None:
        """Accept what the file offers; a subclass may refuse it before anything is made of it."""

    def load(self) -> Runtime:
        """Return the runtime of the program as its file is now, not entered.

        Raises:
            Exception: as of `deployment`.
        """
        return self.deployment().runtime()


class ConfiguredVerifier:
    """Verifies tokens as a configuration says, and as another says from `replace` on."""

    def __init__(self) -> None:
        self._keys: KeySet | None = None
        self._verifier: TokenVerifier | None = None

    async def replace(self, options: Verifying) -> None:
        """Verify tokens with these options from now on.

        Raises:
            KeySetError: their keys cannot be read; everything stays as it was.
        """
        keys: KeySet = UrlKeys(options.jwks_url) if options.jwks_url else FileKeys(options.jwks_file)
        try:
            await keys.open()
        except BaseException:
            await keys.aclose()
            raise
        before, self._keys = self._keys, keys
        allowed = AllowedKeys(keys, frozenset(options.algorithms))
        self._verifier = TokenVerifier(allowed, issuer=options.issuer, audience=options.audience)
        if before is not None:
            await before.aclose()

    async def verify(self, token: str) -> Verified:
        """Return what a token says, after every check.

        Raises:
            TokenRejectedError: the first check that fails.
        """
        assert self._verifier is not None, "replace was not called"
        return await self._verifier.verify(token)

    async def aclose(self) -> None:
        """End what reads the keys."""
        if self._keys is not None:
            await self._keys.aclose()


class AllowedKeys:
    """The keys of a set, for some algorithms alone."""

    def __init__(self, keys: KeySet, algorithms: frozenset[str]) -> None:
        self._keys = keys
        self._algorithms = algorithms

    async def open(self) -> None:
        """Read the keys for the first time.

        Raises:
            KeySetError: they cannot be read or used.
        """
        await self._keys.open()

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key `kid` that verifies `algorithm`; None if there is none, or the algorithm is not allowed.

        Raises:
            KeySetError: no set could be read so far.
        """
        return await self._keys.find(kid, algorithm) if algorithm in self._algorithms else None

    async def aclose(self) -> None:
        """End what reads the keys."""
        await self._keys.aclose()


async def serve_configured(
    program: ConfiguredProgram,
    *,
    bind: str,
    console: ConsoleFiles,
    on_ready: Callable[[Address], None],
    stopping: asyncio.Event,
    clock: Timers = SYSTEM_CLOCK,
) -> None:
    """Serve a program as its configuration says until `stopping` is set; `bind` replaces the configured address.

    Raises:
        Exception: the program, the configuration, the keys or the address cannot be used.
    """
    made = program.deployment()
    address = parse_address(bind or program.loaded.config.server.bind_addr, "--bind" if bind else "server.bind_addr")
    verifier, log = ConfiguredVerifier(), ServiceLog(made.logging)
    crew = Crew(lambda name, error: _LOGGER.error("%s stopped: %s", name, error_reason(error)))
    try:
        for notice in made.notices:
            _LOGGER.warning("%s source=%s", notice.message, program.loaded.file)
        await verifier.replace(made.verifying)
        opened = listen(address)
        try:
            grace = made.grace.total_seconds()
            site = Site(
                program.load,
                storage_of=lambda _: made.storage,
                make_gate=lambda redactor, bus: TokenGate(verifier, redactor=redactor, bus=bus),
                options=made.server,
                grace=grace,
                fallback=console.answer,
                clock=clock,
            )
            live = LiveConfiguration(program, site, verifier, log)

            def ready(at: Address) -> None:
                crew.start(live.follow(clock), "configuration")
                on_ready(at)

            await host(site, opened, on_ready=ready, stopping=stopping, grace=grace, clock=clock)
        finally:
            opened.close()
    finally:
        await crew.aclose()
        await verifier.aclose()
        log.close()


class LiveConfiguration:
    """Takes the new values of a configuration while its server runs, and says in the log what it took."""

    def __init__(self, program: ConfiguredProgram, site: Any, verifier: ConfiguredVerifier, log: ServiceLog) -> None:
        self._program = program
        self._site = site
        self._verifier = verifier
        self._log = log

    async def follow(self, clock: Timers) -> None:
        """Take each change of the file, until cancelled."""
        reloader = ConfigReloader(self._program.loaded, clock=clock)
        async for change in reloader.changes():
            match change:
                case Reloaded():
                    await self.take(change)
                case ReloadRefused(findings):
                    for one in findings:
                        _LOGGER.error("the configuration was not reloaded: %s", one.message)

    async def take(self, change: Reloaded) -> None:
        """Use the new values from now on; keys that need a restart are named in the log."""
        config, options = change.loaded.config, self._site.server.services.options
        self._program.loaded = change.loaded
        self._log.set_level(config.telemetry.log_level)
        self._site.server.services.options = server_options(config, is_mock=options.is_mock)
        self._site.server.edge.allow(self._site.server.services.options.origins)
        if any(key.startswith("identity.") for key in change.changed):
            try:
                await self._verifier.replace(verifying(change.loaded))
            except HarborageError as error:
                _LOGGER.error("the key set before stays: %s", error)
        if change.changed:
            _LOGGER.warning("reloaded: %s", ", ".join(change.changed))
        if change.waiting:
            _LOGGER.warning("a restart is needed for: %s", ", ".join(change.waiting))
