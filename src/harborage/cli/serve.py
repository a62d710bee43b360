"""`harborage serve` and `harborage dev`: their options, checked and passed on.

Reading help must stay cheap, so everything that a server needs is imported when there is one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from cyclopts import Parameter

from harborage.cli.storage import Debug, WrongUseError, flag, prepare_storage, run_command, storage_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from harborage.events import EventBus, Redactor
    from harborage.server.auth.gate import Gate
    from harborage.server.listening import Address
    from harborage.state.storage import Storage

_AGENTS = "The file or module with the agents, such as service.py; its Runtime([…]) if it has one, else all its agents."
_BIND = "Where to listen, as HOST:PORT; port 0 takes a free one."
_CONSOLE = "The folder with the build of a console to serve instead of the built-in one."
_CONFIG = "The configuration, such as harborage.yaml; it says everything that is no option beside it."
_MODEL = "The model of agents that name none, such as openai:gpt-5."
_STORAGE = Parameter(
    help="Where runs are kept: sqlite:FILE, postgres://…, or memory: for as long as the server runs.",
    show_default="that of the file's runtime, else HARBORAGE_STORAGE, else .harborage/harborage.db",
)
_GRACE_S: Final = 30.0
_ADDRESS: Final = "127.0.0.1:18080"
_DEV_GRACE_S: Final = 0.2
_DEV_PORT: Final = 18080
_FIXTURES_BANNER: Final = "[DEV-ONLY FIXTURES — THESE ROWS ARE MADE UP]"
_MOCK_BANNER: Final = "[DEV-ONLY MOCK LLM — DO NOT USE IN PRODUCTION]"

Agents: TypeAlias = Annotated[str, Parameter(help=_AGENTS, show_default="agent.py, else the standard assistant")]
Console: TypeAlias = Annotated[Path | None, Parameter(help=_CONSOLE, show_default=False)]
Model: TypeAlias = Annotated[str, Parameter(help=_MODEL, show_default="what this machine has")]


def serve(
    agents: Agents = "",
    /,
    *,
    config: Annotated[str, Parameter(help=_CONFIG, show_default=False)] = "",
    bind: Annotated[str, Parameter(help=_BIND, show_default="that of --config, else 127.0.0.1:18080")] = "",
    keys: Annotated[str, Parameter(help="The public keys that tokens are signed with: a JWKS file or URL.")] = "",
    issuer: Annotated[str, Parameter(help="The issuer that tokens must name.", show_default="any")] = "",
    audience: Annotated[str, Parameter(help="The audience that tokens must name.", show_default="any")] = "",
    origin: Annotated[
        list[str] | None,
        Parameter(help="An origin whose pages may call the server. Can be repeated.", negative="", show_default=False),
    ] = None,
    storage: Annotated[str, _STORAGE] = "",
    model: Model = "",
    console_dir: Console = None,
    debug: Debug = False,
) -> int:
    """Serve agents over HTTP, until it is interrupted.

    Requests need a token: --keys names the public keys, and 'harborage token'
    makes tokens for development. With --config a file says who may call, where
    runs are kept, and the rest; log level, origins and keys are taken from it
    again when it changes. On SIGTERM and Ctrl-C streams end at once,
    requests are answered, and runs go on at another server over the same
    database, or at the next start.

    Exit codes:
      0    it was stopped
      1    it failed
      2    wrong use: no such agent, no keys, a wrong configuration, a taken address
    """

    given = {"--keys": keys, "--issuer": issuer, "--audience": audience, "--origin": origin, "--storage": storage}
    said = [name for name, value in {**given, "--model": model}.items() if value]

    def work() -> Coroutine[Any, Any, int]:
        if config:
            return _serve_configured(agents, config, said, bind=bind, console_dir=console_dir)
        return _serve_with_keys(
            agents,
            keys,
            issuer=issuer,
            audience=audience,
            bind=bind or _ADDRESS,
            storage=storage,
            model=model,
            origins=tuple(origin or ()),
            console_dir=console_dir,
        )

    return run_command(work, debug=debug)


async def _serve_with_keys(
    agents: str, keys: str, *, issuer: str, audience: str, origins: tuple[str, ...], **options: Any
) -> int:
    """Serve as the options say."""
    from harborage.server.auth.keys import FileKeys, UrlKeys
    from harborage.server.auth.tokens import TokenVerifier
    from harborage.server.services import ServerOptions

    if not keys.strip():
        raise WrongUseError(
            "no keys, so no request could be let in: --keys FILE or URL names the public keys; "
            "for development: harborage token --new-key key.pem, or harborage dev"
        )
    key_set: Any = UrlKeys(keys) if "://" in keys else FileKeys(keys)
    await key_set.open()
    verifier = TokenVerifier(key_set, issuer=issuer, audience=audience)
    try:
        return await _serve(
            agents,
            make_gate=_gate_of(verifier),
            options=ServerOptions(origins=origins),
            grace=_GRACE_S,
            on_ready=lambda address: _say(f"harborage: serving on http://{address}"),
            **options,
        )
    finally:
        await key_set.aclose()


async def _serve_configured(agents: str, config: str, said: list[str], *, bind: str, console_dir: Path | None) -> int:
    """Serve as the configuration says; what is wrong with it is listed."""
    from harborage.app.configured_site import ConfiguredProgram, serve_configured
    from harborage.app.served import default_target
    from harborage.config import ConfigError, read_config
    from harborage.config.loader import read_file
    from harborage.server.console_files import ConsoleFiles, console_folder

    if said:
        raise WrongUseError(f"{', '.join(said)} and --config: say it in {config}, or leave --config out")
    try:
        loaded = read_config(read_file(config), file=config, environ=os.environ)
        await serve_configured(
            ConfiguredProgram(agents or default_target(Path.cwd()), Path.cwd(), loaded),
            bind=bind,
            console=ConsoleFiles(console_folder(console_dir)),
            on_ready=lambda address: _say(f"harborage: serving on http://{address}"),
            stopping=_stopped_by_signal(),
        )
    except ConfigError as error:
        for finding in error.findings:
            hint = f" ({finding.hint})" if finding.hint else ""
            _say(f"harborage: {finding.place}: {finding.message}{hint}")
        return 2
    return 0


def dev(
    agents: Agents = "",
    /,
    *,
    config: Annotated[str, Parameter(help=_CONFIG, show_default=False)] = "",
    bind: Annotated[str, Parameter(help=_BIND, show_default="HARBOR_BIND, else 127.0.0.1 and --port")] = "",
    port: Annotated[int, Parameter(help="The port on 127.0.0.1.")] = _DEV_PORT,
    storage: Annotated[str, _STORAGE] = "",
    model: Model = "",
    console_dir: Console = None,
    no_hot_reload: Annotated[bool, flag("Keep the code that the server was started with.")] = False,
    seed_fixtures: Annotated[bool, flag("Serve rows of every kind to look at, made on a mock model.")] = False,
    json: Annotated[bool, flag("Print why it does not start as one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Serve agents on this machine while you work on them, and reload their code.

    Prints HARBOR_DEV_BOUND=HOST:PORT and HARBOR_DEV_TOKEN=TOKEN on stderr. The
    token may do everything at this server, for 24 hours; pages of any origin may
    call. When a file beside the agents changes, runs in flight are parked and go
    on with the new code. Code that cannot be loaded is refused: the code before
    keeps serving.

    HARBOR_DEV_ALLOW_MOCK=1 answers every model call with a mock, and
    HARBOR_DEV_SEED_FIXTURES=1 is --seed-fixtures.

    With --config a file says where runs are kept, which model answers, and the
    rest, but for the keys: this server's token counts. What keeps it from starting
    has a code: boot_config_invalid, boot_llm_required, boot_internal_error.

    Exit codes:
      0    it was stopped
      1    it failed
      2    wrong use: no such agent, a taken address
    """

    is_mock = os.environ.get("HARBOR_DEV_ALLOW_MOCK", "") == "1"
    has_fixtures = seed_fixtures or os.environ.get("HARBOR_DEV_SEED_FIXTURES", "") == "1"
    address = bind or os.environ.get("HARBOR_BIND", "").strip() or f"127.0.0.1:{port}"
    options: dict[str, Any] = {
        "bind": address,
        "console_dir": console_dir,
        "is_mock": is_mock,
        "reloads": not no_hot_reload,
    }
    if is_mock:
        _say(_MOCK_BANNER)
    if has_fixtures:
        _say(_FIXTURES_BANNER)
    if config:
        given = {"--storage": storage, "--model": model, "--seed-fixtures": has_fixtures}
        said = [name for name, value in given.items() if value]
        return _develop_configured(agents, config, said, is_json=json, **options)
    kept = storage or ("memory:" if has_fixtures else "")
    return run_command(
        lambda: _develop(agents, storage=kept, model=model, has_fixtures=has_fixtures, **options), debug=debug
    )


def _develop_configured(
    agents: str, config: str, said: list[str], *, is_mock: bool, is_json: bool, **options: Any
) -> int:
    """Serve as a configuration says, with a key of this process; why it does not start has a code."""
    from harborage.app.developed import DevelopedProgram, LLMRequiredError
    from harborage.app.served import default_target
    from harborage.cli.pinned import fail
    from harborage.cli.text import printable
    from harborage.config import ConfigError
    from harborage.errors import error_summary

    if said:
        text = f"{', '.join(said)} and --config: say it in {config}, or leave --config out"
        return fail("dev", text, "boot_config_invalid", is_json=is_json)
    try:
        program = DevelopedProgram(agents or default_target(Path.cwd()), Path.cwd(), config, is_mock=is_mock)
        made = program.deployment()
        return asyncio.run(_develop(program.target, program=program, made=made, is_mock=is_mock, **options))
    except LLMRequiredError as error:
        return fail("dev", str(error), "boot_llm_required", hint=error.hint, is_json=is_json)
    except ConfigError as error:
        lines = [f"{one.place}: {one.message}" + (f" ({one.hint})" if one.hint else "") for one in error.findings]
        text = f"{config} cannot be used"
        more = {"errors": lines}
        return fail("dev", text, "boot_config_invalid", is_json=is_json, more=more, lines=[*map(printable, lines)])
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        return fail("dev", " ".join(error_summary(error).split()), "boot_internal_error", is_json=is_json)


async def _develop(
    agents: str, *, is_mock: bool, reloads: bool, program: Any = None, made: Any = None, **options: Any
) -> int:
    """Serve with a key of this process, and print a token that it signed; `made` is what a configuration says."""
    from msgspec.structs import replace

    from harborage.app.drafts.routes import Drafts
    from harborage.app.hosting import Reloading
    from harborage.server.auth.minting import DEV_IDENTITY, development_mint, sign_development_token, verifier_of
    from harborage.server.bootstrap import bootstrap_route
    from harborage.server.console_files import BUILD_COMMAND, console_folder
    from harborage.server.services import ServerOptions

    mint = development_mint()
    served = ServerOptions() if made is None else made.server
    files = () if program is None else (program.file,)

    def ready(address: Address) -> None:
        _say(f"HARBOR_DEV_TOKEN={sign_development_token(mint)}")
        _say(f"HARBOR_DEV_BOUND={address}")
        _say(f"harborage: http://{address}")
        if console_folder(options["console_dir"]) is None:
            _say(f"harborage: the console is not built; in a checkout '{BUILD_COMMAND}' builds it")

    return await _serve(
        agents,
        is_mock=is_mock,
        make_gate=_gate_of(verifier_of(mint)),
        options=replace(served, any_origin=True, subcommand="dev", is_mock=is_mock),
        issuer=mint,
        routes=(bootstrap_route(mint),),
        extensions=(Drafts(Path.cwd()).routes,),
        grace=_DEV_GRACE_S,
        reload=(lambda root: Reloading(roots=(root, *files), who=DEV_IDENTITY)) if reloads else None,
        on_ready=ready,
        program=program,
        **({} if made is None else {"storage": made.storage, "model": ""}),
        **options,
    )


async def _serve(
    agents: str,
    *,
    bind: str,
    storage: str,
    model: str,
    make_gate: Callable[[Redactor, EventBus], Gate],
    options: Any,
    console_dir: Path | None,
    grace: float,
    on_ready: Callable[[Address], None],
    is_mock: bool = False,
    has_fixtures: bool = False,
    issuer: Any = None,
    routes: tuple[Any, ...] = (),
    extensions: tuple[Any, ...] = (),
    reload: Callable[[Path], Any] | None = None,
    program: Any = None,
) -> int:
    """Listen, load the program, and serve it until a signal comes."""
    from harborage.app.hosting import host
    from harborage.app.served import Program, default_target
    from harborage.app.site import Site
    from harborage.server.console_files import ConsoleFiles, console_folder
    from harborage.server.listening import listen, parse_address

    console = ConsoleFiles(console_folder(console_dir), is_development=issuer is not None)
    address = parse_address(bind, "--bind")
    besides, flows, prepare = _fixtures() if has_fixtures else ((), None, None)
    if program is None:
        target = agents or default_target(Path.cwd())
        program = Program(target, Path.cwd(), model=model, is_mock=is_mock, besides=besides)
        await program.open(os.environ)
    opened = listen(address)
    try:
        site = Site(
            program.load,
            storage_of=lambda runtime: _storage_for(storage, runtime.storage),
            make_gate=make_gate,
            options=options,
            grace=grace,
            issuer=issuer,
            routes=routes,
            extensions=extensions,
            fallback=console.answer,
            flows=flows,
            prepare=prepare,
            probe=program.probe,
        )
        await host(
            site,
            opened,
            on_ready=on_ready,
            stopping=_stopped_by_signal(),
            grace=grace,
            reloading=None if reload is None else reload(program.root),
        )
    finally:
        opened.close()
    return 0


def _fixtures() -> tuple[Sequence[Any], Any, Any]:
    """The agents and flows of the fixtures, and what stores the rest of them."""
    from functools import partial

    from harborage.app.fixtures import FixtureFlows, fixture_agents, seed
    from harborage.clock import SYSTEM_CLOCK

    return fixture_agents(), FixtureFlows(SYSTEM_CLOCK), partial(seed, clock=SYSTEM_CLOCK)


def _storage_for(option: str, of_runtime: Storage | str | None) -> Storage | str:
    """The storage that the option names, else that of the file's runtime, else the project's."""
    if not option.strip() and of_runtime is not None:
        return of_runtime
    url = storage_url(option, os.environ)
    prepare_storage(url)
    return url


def _gate_of(verifier: Any) -> Callable[[Redactor, EventBus], Gate]:
    from harborage.server.auth.gate import TokenGate

    return lambda redactor, bus: TokenGate(verifier, redactor=redactor, bus=bus)


def _stopped_by_signal() -> asyncio.Event:
    """An event that is set by the first SIGINT or SIGTERM; the second ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopping


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
