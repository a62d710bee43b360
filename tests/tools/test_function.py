"""Typed Python functions as tools: schemas, arguments, context, threads, and what is refused at registration."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock
from harborage.tools import (
    CallContext,
    Invoker,
    Loading,
    SideEffect,
    ToolCatalog,
    ToolCrashedError,
    ToolDescriptor,
    ToolDuplicateNameError,
    ToolInvalidArgsError,
    ToolPolicy,
    ToolResult,
    ToolTimeoutError,
    UnsupportedTypeError,
    ValidateMode,
    register_function,
    tool,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

CALL = CallContext(Quadruple("t", "u", "s", "r"), "c1", "key")
Choice = Literal["a", "b"]
ambient: contextvars.ContextVar[str] = contextvars.ContextVar("ambient", default="none")


@dataclass
class Point:
    """A nested record."""

    x: int
    y: int = 0


class Person(pydantic.BaseModel):
    """A model with validation of its own."""

    name: str = pydantic.Field(min_length=2)
    friends: list[Person] = []


class Described:
    """Stands for `Doc` objects of other packages."""

    documentation = "How many."


async def value_of(descriptor: ToolDescriptor, args: bytes) -> Any:
    """What the tool gives for these arguments."""
    return (await descriptor.body(args, CALL)).value


class TestDescription:
    """What a function says of itself."""

    def test_a_bare_decorator_takes_everything_from_the_function(self) -> None:
        """Name, description, schemas and parameter descriptions come from the function."""

        @tool
        async def search(query: str, limit: int = 10, lang: str | None = None) -> list[str]:
            """Find pages.

            Args:
                query: What to look for.
                limit: How many at most.
            """
            return [query] * limit

        assert search.tool.name == "search"
        assert search.tool.description == "Find pages."
        assert search.tool.args_schema == {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "description": "How many at most.", "default": 10},
                "lang": {"type": "string"},
            },
            "additionalProperties": False,
            "required": ["query"],
        }
        assert search.tool.out_schema == {"type": "array", "items": {"type": "string"}}
        assert (search.tool.side_effects, search.tool.loading) == ("stateful", "always")

    async def test_the_function_stays_callable(self) -> None:
        """The undecorated function is at hand for its own tests."""

        @tool
        async def double(n: int) -> int:
            return 2 * n

        assert double.function is not None
        assert await double.function(4) == 8

    def test_options_overrule_the_function(self) -> None:
        """Every field of a tool can be given."""

        @tool(
            name="mail.send",
            description="Sends.",
            effects=SideEffect.EXTERNAL,
            idempotent=True,
            tags=("mail",),
            auth_scopes=("mail:send",),
            cost_hint="low",
            latency_hint="1s",
            safety_notes="asks first",
            loading=Loading.DEFERRED,
            source="inline",
            policy=ToolPolicy(max_retries=0),
            handles_mime=("text/*",),
        )
        def send() -> None:
            """Ignored."""

        published = send.tool
        assert (published.name, published.description, published.side_effects) == (
            "mail.send",
            "Sends.",
            SideEffect.EXTERNAL,
        )
        assert (published.idempotent, published.tags, published.auth_scopes) == (True, ("mail",), ("mail:send",))
        assert (published.cost_hint, published.latency_hint, published.safety_notes) == ("low", "1s", "asks first")
        assert (published.loading, published.source, published.handles_mime) == (
            Loading.DEFERRED,
            "inline",
            ("text/*",),
        )
        assert send.policy.max_retries == 0

    def test_a_description_may_stand_in_the_annotation(self) -> None:
        """Text, a `Meta` description and a documentation object describe a parameter; the docstring comes last."""

        @tool
        async def f(
            a: Annotated[int, "The a."],
            b: Annotated[int, msgspec.Meta(ge=1, description="The b.")],
            c: Annotated[int, Described()],
            d: Annotated[int, object()] = 0,
        ) -> None:
            """Do.

            Args:
                a: Not this.
                d: The d.
            """

        properties = f.tool.args_schema["properties"]
        assert [properties[name]["description"] for name in "abcd"] == ["The a.", "The b.", "How many.", "The d."]
        assert properties["b"]["minimum"] == 1

    def test_a_tool_without_arguments_has_a_closed_empty_object(self) -> None:
        """No parameters: an object that admits nothing."""

        @tool
        async def ping() -> str:
            return "pong"

        assert ping.tool.args_schema == {"type": "object", "properties": {}, "additionalProperties": False}

    @pytest.mark.parametrize("annotation", [ToolResult, Any])
    def test_a_function_that_gives_anything_promises_nothing(self, annotation: Any) -> None:
        """Neither ToolResult nor Any has a schema to check."""

        async def f():  # type: ignore[no-untyped-def]
            return None

        f.__annotations__["return"] = annotation
        descriptor = tool(f)
        assert descriptor.tool.out_schema == {}
        assert descriptor.validate_result is None

    def test_methods_objects_partials_and_wrappers_are_functions_too(self) -> None:
        """Whatever can be called by keyword becomes a tool, described by the function behind it."""

        class Shop:
            async def price(self, item: str) -> int:
                """The price."""
                return len(item)

            async def __call__(self, item: str) -> int:
                """The shop."""
                return len(item)

        def shout(fn: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fn)
            async def inner(*args: Any, **kwargs: Any) -> Any:
                return await fn(*args, **kwargs)

            return inner

        bound, whole = tool(Shop().price), tool(Shop())
        partial, wrapped = tool(functools.partial(Shop().price)), tool(shout(Shop().price))
        assert [each.tool.name for each in (bound, whole, partial, wrapped)] == ["price", "shop", "price", "price"]
        assert [each.tool.description for each in (bound, whole, partial, wrapped)] == [
            "The price.",
            "The shop.",
            "The price.",
            "The price.",
        ]
        assert all(list(each.tool.args_schema["properties"]) == ["item"] for each in (bound, whole, partial, wrapped))

    async def test_what_a_partial_has_bound_is_hidden(self) -> None:
        """A bound credential is neither shown to the model nor taken from it."""

        async def fetch(url: str, key: str) -> str:
            return url + key

        descriptor = tool(functools.partial(fetch, key="secret"))
        assert list(descriptor.tool.args_schema["properties"]) == ["url"]
        assert await value_of(descriptor, b'{"url":"u"}') == "usecret"
        with pytest.raises(ToolInvalidArgsError):
            await value_of(descriptor, b'{"url":"u","key":"mine"}')


class TestRefusal:
    """What cannot be a tool fails at registration."""

    @each_row("annotation", [Callable[[], None], asyncio.Queue, AsyncIterator[int], complex])
    def test_types_without_json_are_refused_on_both_sides(self, annotation: Any) -> None:
        """An argument or a result that JSON cannot carry is named by its place."""

        async def f(x, y=None):  # type: ignore[no-untyped-def]
            return None

        f.__annotations__.update(x=int, y=list[annotation])
        with pytest.raises(UnsupportedTypeError, match=r"f\.y\[\]"):
            tool(f)
        f.__annotations__.update(y=int)
        f.__annotations__["return"] = annotation
        with pytest.raises(UnsupportedTypeError, match="f -> result"):
            tool(f)

    def test_generators_are_refused(self) -> None:
        """A tool gives one value."""

        def some() -> Iterator[int]:
            yield 1

        async def more() -> AsyncIterator[int]:
            yield 1

        for fn in (some, more):
            with pytest.raises(UnsupportedTypeError, match="one value"):
                tool(fn)

    def test_an_annotation_that_cannot_be_resolved_is_refused(self) -> None:
        """The error names what is missing."""

        async def f(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(UnsupportedTypeError, match="Missing"):
            tool(f)

    def test_two_contexts_are_refused(self) -> None:
        """There is one context, and it is given once."""

        async def f(a: CallContext, b: CallContext) -> None: ...

        with pytest.raises(UnsupportedTypeError, match="a, b"):
            tool(f)

    def test_an_ambiguous_union_is_refused(self) -> None:
        """Two records without tags cannot be told apart."""

        async def f(x: Point | dict[str, int]) -> None: ...

        with pytest.raises(UnsupportedTypeError, match="both are written as object; keep one of them"):
            tool(f)

    def test_a_callable_whose_signature_is_unknown_is_refused(self) -> None:
        """Some builtins do not say what they take."""
        with pytest.raises(UnsupportedTypeError, match="signature"):
            tool(max)


class TestArguments:
    """From argument bytes to typed values."""

    async def test_values_arrive_as_declared(self) -> None:
        """Records, dates, bytes and models arrive as what the signature says, defaults filled in."""

        @tool
        async def f(at: datetime, raw: bytes, where: Point, who: Person, tags: list[str] | None, n: float = 2) -> str:
            assert (at.year, raw, where, tags, n) == (2026, b"hi", Point(1, 0), None, 3.0)
            assert type(n) is float
            return who.friends[0].name

        args = (
            b'{"at":"2026-01-02T03:04:05Z","raw":"aGk=","where":{"x":1},'
            b'"who":{"name":"Al","friends":[{"name":"Bo"}]},"n":3}'
        )
        assert await value_of(f, args) == "Bo"

    @each_row(
        "args, path",
        [
            (b"{}", "$.n"),
            (b'{"n":"x"}', "$.n"),
            (b'{"n":1.5}', "$.n"),
            (b'{"n":null}', "$.n"),
            (b'{"n":1,"zzz":2}', "$.zzz"),
            (b'{"n":1,"where":{"x":1,"zzz":2}}', "$.where.zzz"),
            (b'{"n":1,"where":{}}', "$.where.x"),
            (b'{"n":1,"many":[{"x":1},{"x":"a"}]}', "$.many[1].x"),
            (b'{"n":1,"many":[{"x":1},{"x":1,"zzz":2}]}', "$.many[1].zzz"),
            (b'{"n":1,"who":{"name":"Al","friends":[{"name":"x"}]}}', "$.who.friends[0].name"),
            (b'{"n":1,"who":7}', "$.who"),
            (b"[1]", "$"),
            (b"null", "$"),
            (b'"text"', "$"),
            (b"{", "$"),
            (b"{}{}", "$"),
            (b'{"n":1,"where":"\xff"}', "$"),
            (b'{"n":1,"anything":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "$"),
        ],
    )
    async def test_what_does_not_fit_is_refused_at_its_place(self, args: bytes, path: str) -> None:
        """The body is never called, and the error names the path."""

        @tool
        async def f(
            n: int,
            where: Point | None = None,
            many: list[Point] | None = None,
            who: Person | None = None,
            anything: Any = None,
        ) -> None:
            pytest.fail("the body was called")

        for refuse in (f.body(args, CALL), Invoker().invoke(f, args, CALL)):
            with pytest.raises(ToolInvalidArgsError) as caught:
                await refuse
            assert caught.value.path == path
        assert f.validate_args is not None
        with pytest.raises(ToolInvalidArgsError):
            f.validate_args(args)

    async def test_an_error_does_not_repeat_the_value(self) -> None:
        """What was passed, perhaps a secret, is in no message."""

        @tool
        async def f(mode: Point | None = None, who: Person | None = None, choice: Choice = "a") -> None: ...

        for args in (b'{"choice":"hunter2"}', b'{"who":{"name":["hunter2"]}}', b'{"mode":"hunter2"}'):
            with pytest.raises(ToolInvalidArgsError) as caught:
                await value_of(f, args)
            assert "hunter2" not in str(caught.value)

    async def test_empty_arguments_are_an_empty_object(self) -> None:
        """No bytes, or white space, mean all defaults; a required argument is still missed."""

        @tool
        async def f(n: int = 3) -> int:
            return n

        @tool
        async def g(n: int) -> int:
            return n

        assert [await value_of(f, args) for args in (b"", b" \n", b"{}")] == [3, 3, 3]
        with pytest.raises(ToolInvalidArgsError, match=r"\$\.n"):
            await value_of(g, b"")

    async def test_null_is_an_empty_object_only_without_validation(self) -> None:
        """The object schema rejects null; with validation of arguments off it means all defaults."""

        async def f(n: int = 3, where: Point | None = None) -> int:
            return n

        with pytest.raises(ToolInvalidArgsError):
            await value_of(tool(f), b"null")
        unchecked = tool(f, policy=ToolPolicy(validate=ValidateMode.OUT))
        assert await value_of(unchecked, b" null ") == 3
        with pytest.raises(ToolInvalidArgsError):
            await value_of(unchecked, b'{"zzz":1}')

    async def test_a_mutable_default_is_not_shared(self) -> None:
        """What one call does to a default does not show in the next."""

        @tool
        async def f(xs: list[int] = [1], more: dict[str, list[int]] = {"a": []}) -> int:  # noqa: B006
            xs.append(2)
            more["a"].append(1)
            return len(xs) + len(more["a"])

        assert [await value_of(f, b"{}") for _ in range(3)] == [3, 3, 3]

    async def test_an_optional_parameter_without_default_is_none(self) -> None:
        """Optional means that it need not be given; null is the same as leaving it out."""

        @tool
        async def f(x: int | None, y: int | None = 5) -> tuple[int | None, int | None]:
            return (x, y)

        assert "required" not in f.tool.args_schema
        assert await value_of(f, b"{}") == (None, 5)
        assert await value_of(f, b'{"x":null,"y":null}') == (None, None)

    async def test_a_required_parameter_may_follow_an_optional_one(self) -> None:
        """Arguments are named, so their order does not matter."""

        @tool
        async def f(x: int | None, y: int, *, z: int = 1, w: int) -> list[int | None]:
            return [x, y, z, w]

        assert f.tool.args_schema["required"] == ["w", "y"]
        assert await value_of(f, b'{"w":4,"y":2}') == [None, 2, 1, 4]

    async def test_the_context_is_given_and_hidden(self) -> None:
        """The parameter for the context is in no schema, and no argument can take its place."""

        @tool
        async def f(call: CallContext, n: int) -> str:
            return f"{n}{call.idempotency_key}"

        @tool
        async def g(call: Annotated[CallContext, "x"]) -> str:
            return call.call_id

        assert list(f.tool.args_schema["properties"]) == ["n"]
        assert await value_of(f, b'{"n":1}') == "1key"
        assert await value_of(g, b"{}") == "c1"
        with pytest.raises(ToolInvalidArgsError):
            await value_of(f, b'{"n":1,"call":{}}')


class TestResults:
    """What a function gives."""

    @each_row(
        "annotation, good, bad",
        [
            (int, 1, "1"),
            (int, 1, True),
            (None, None, 1),
            (list[str], ["a"], [1]),
            (Point, Point(1), 7),
            (Person, Person(name="Al"), {"name": "A"}),
            (Person | None, None, 3),
            (bytes, b"x", 1),
            (datetime, datetime(2026, 1, 1), 5),
        ],
    )
    async def test_a_result_is_checked_against_the_annotation(self, annotation: Any, good: Any, bad: Any) -> None:
        """What was declared passes unchanged; anything else is an output error."""

        async def f(is_good: bool):  # type: ignore[no-untyped-def]
            return good if is_good else bad

        f.__annotations__["return"] = annotation
        descriptor = tool(f)
        assert (await Invoker().invoke(descriptor, b'{"is_good":true}', CALL)).value is good
        with pytest.raises(ToolInvalidArgsError, match=r"^output:"):
            await Invoker().invoke(descriptor, b'{"is_good":false}', CALL)

    async def test_a_function_may_give_a_whole_result(self) -> None:
        """A ToolResult is passed on with its meta."""

        @tool
        async def f() -> ToolResult:
            return ToolResult(1, {"page": 2})

        assert await f.body(b"{}", CALL) == ToolResult(1, {"page": 2})


class TestThreads:
    """Functions that are not async."""

    async def test_a_sync_function_runs_in_a_worker_thread_with_the_callers_context(self) -> None:
        """It does not hold up the loop and sees the caller's context variables."""

        @tool
        def f(call: CallContext) -> tuple[bool, str, str]:
            return threading.current_thread() is threading.main_thread(), ambient.get(), call.call_id

        token = ambient.set("mine")
        try:
            assert await value_of(f, b"{}") == (False, "mine", "c1")
        finally:
            ambient.reset(token)

    async def test_an_async_function_runs_on_the_loop(self) -> None:
        """No thread is involved."""

        @tool
        async def f() -> bool:
            return threading.current_thread() is threading.main_thread()

        assert await value_of(f, b"{}") is True

    async def test_a_sync_function_that_returns_an_awaitable_is_awaited(self) -> None:
        """A plain function around a coroutine works."""

        async def inner() -> int:
            return 7

        def f() -> Any:
            return inner()

        assert await value_of(tool(f), b"{}") == 7

    @each_row("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
    async def test_a_thread_cannot_end_the_process(self, error: type[BaseException]) -> None:
        """What a thread may not raise becomes an ordinary error that names it."""

        def f() -> None:
            raise error

        with pytest.raises(ToolCrashedError, match=error.__name__) as caught:
            await value_of(tool(f), b"{}")
        assert isinstance(caught.value.__cause__, error)

    async def test_a_slow_thread_is_left_at_its_deadline(self) -> None:
        """The call ends with the deadline although the thread goes on."""
        clock, began, release, ended = FakeClock(), threading.Event(), threading.Event(), threading.Event()

        def slow() -> None:
            began.set()
            release.wait(10)
            ended.set()

        descriptor = tool(slow, policy=ToolPolicy(timeout_ms=50, retry_on=()))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(_failure(Invoker(clock=clock).invoke(descriptor, b"{}", CALL)))
            await asyncio.to_thread(began.wait, 10)
            clock.advance(0.05)
            assert isinstance(await call, ToolTimeoutError)
        assert not ended.is_set()
        release.set()
        assert ended.wait(10)


class TestRegister:
    """`register_function`."""

    async def test_a_function_goes_straight_into_a_catalog(self) -> None:
        """The tool is registered under the given name and returned."""
        catalog = ToolCatalog()

        async def anything(n: int) -> int:
            return n + 1

        registered = register_function(catalog, "math.next", anything, description="The next.", tags=("math",))
        found = catalog.resolve("math.next")
        assert found is not None
        assert found.tool is registered
        assert (registered.name, registered.description, registered.tags) == ("math.next", "The next.", ("math",))
        assert await value_of(found, b'{"n":1}') == 2

    def test_a_refused_function_is_not_registered(self) -> None:
        """No name, a name that is taken, or a type without JSON: the catalog stays as it was."""
        catalog = ToolCatalog()

        async def bad(x: complex) -> None: ...
        async def good() -> None: ...

        with pytest.raises(UnsupportedTypeError):
            register_function(catalog, "bad", bad)
        with pytest.raises(ToolDuplicateNameError):
            register_function(catalog, "", good)
        register_function(catalog, "good", good)
        with pytest.raises(ToolDuplicateNameError):
            register_function(catalog, "good", good)
        assert [each.name for each in catalog.list()] == ["good"]

    async def test_one_tool_serves_many_calls_at_once(self) -> None:
        """128 calls of one tool on one loop do not see each other's arguments or contexts."""

        @tool
        async def f(call: CallContext, n: int, xs: list[int]) -> list[Any]:
            xs.append(n)
            await asyncio.sleep(0)
            return [*xs, call.who.run_id]

        invoker = Invoker()

        async def one(n: int) -> list[Any]:
            call = CallContext(Quadruple("t", "u", "s", f"r{n}"))
            result = await invoker.invoke(f, b'{"n":%d,"xs":[%d]}' % (n, n), call)
            return list(result.value)

        assert await asyncio.gather(*map(one, range(128))) == [[n, n, f"r{n}"] for n in range(128)]


async def _failure(call: Any) -> BaseException:
    try:
        await call
    except Exception as error:
        return error
    raise AssertionError("the call succeeded")
