"""What a type checker infers for an agent: its output, wherever it is read, and the lines that it must refuse."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

OUTPUTS = """
from dataclasses import dataclass
from typing import Literal

import harborage.sync

from harborage import Agent, Identity, Image, Limits, Model, Runtime

@dataclass
class Answer:
    text: str

@dataclass
class Refusal:
    why: str

WHO = Identity("t", "u", "s")
plain = Agent("plain", model="openai:gpt-5")
typed = Agent("typed", model="openai:gpt-5", output=Answer)
either = Agent("either", model="openai:gpt-5", output=Answer | Refusal)
several = Agent("several", model="openai:gpt-5", output=list[Answer])
word = Agent("word", model="openai:gpt-5", output=Literal["yes", "no"])

async def main() -> None:
    reveal_type((await plain.run("go")).output)  # str
    reveal_type((await typed.run("go")).output)  # Answer
    reveal_type((await either.run("go")).output)  # Answer | Refusal
    reveal_type((await several.run("go")).output)  # list[Answer]
    reveal_type((await word.run("go")).output)  # Literal['yes'] | Literal['no']
    reveal_type((await (await typed.start("go")).result()).output)  # Answer
    reveal_type(typed.run_sync("go").output)  # Answer
    reveal_type((await typed.session("s").send("go")).output)  # Answer
    reveal_type((await typed.replace(instructions="Be brief.").run("go")).output)  # Answer
    reveal_type((await typed.run("go", model="openai:gpt-5-mini", key="7", tags={"shop": "porto"})).output)  # Answer
    first = await plain.run("go", tools=[])
    await plain.run("go", messages=first.messages)
    await typed.run("go", key=7)  # refused
    await typed.run("go", tags=["porto"])  # refused
    await typed.run("go", messages="hello")  # refused
    await typed.run("go", model=5)  # refused
    await typed.run("go", model=[Model("openai:gpt-5", reasoning="high"), "anthropic:claude-sonnet-4-5"])
    Model("openai:gpt-5", reasoning="hgh")  # refused
    Model("openai:gpt-5", temprature=1)  # refused
    reveal_type((await typed.run(["What is this?", Image("receipt.png")])).output)  # Answer
    await typed.run(["What is this?", 5])  # refused
    await typed.session("s").send(Image("receipt.png"))  # refused
    async with typed.stream("go") as run:
        reveal_type((await run.result()).output)  # Answer
        reveal_type([one async for one in run.outputs()])  # list[Answer]
    async with Runtime([plain, typed]) as runtime:
        reveal_type((await (await runtime.start(typed, "go", who=WHO)).result()).output)  # Answer
        reveal_type((await runtime.session(either, who=WHO).send("go")).output)  # Answer | Refusal
        reveal_type((await runtime.runs(who=WHO, status="waiting"))[0].run_id)  # str
        reveal_type([one.token for one in await runtime.pending(who=WHO)])  # list[str]
        await runtime.runs(status="waiting")  # refused
        await runtime.runs(who=WHO, tags="porto")  # refused
        await runtime.start(typed, who=WHO)  # refused
        await runtime.start(typed, "go")  # refused
        await runtime.start(typed, 5, who=WHO)  # refused
        await runtime.start(typed, "go", who="ada")  # refused
        await runtime.start(typed, "go", who=WHO, max_stps=3)  # refused
    with harborage.sync.Runtime([typed]) as blocking:
        reveal_type(blocking.start(typed, "go", who=WHO, key="7").result().output)  # Answer
        reveal_type(blocking.session(either, who=WHO).send("go").output)  # Answer | Refusal
        blocking.start(typed, "go")  # refused
    Agent(model="openai:gpt-5")  # refused
    Agent("a", modell="openai:gpt-5")  # refused
    Agent("a", tools=5)  # refused
    Agent("a", limits={"steps": 3})  # refused
    Agent("a", output=5)  # refused
    await typed.run(5)  # refused
    await typed.run("go", who="ada")  # refused
    await typed.run("go", limit=3)  # refused
    typed.run("go").output  # refused
    typed.session(5)  # refused
    number: int = (await typed.run("go")).output  # refused
    text: str = (await several.run("go")).output  # refused
    (await typed.run("go")).outputs  # refused
    (await typed.run("go")).usage.tokns  # refused
    (await typed.run("go")).messages[0].txt  # refused
    typed.run_sync("go").data  # refused
    typed.run_sync("go", limits=3)  # refused
    typed.replace(3)  # refused
    typed.session("s").send(5)  # refused
    await typed.session("s").snd("go")  # refused
    typed.session("s", busy=3)  # refused
    run = await typed.start("go")
    await run.message(5)  # refused
    await run.redirect()  # refused
    await run.inject("context")  # refused
    await run.prioritize("high")  # refused
    await run.cancel(hrd=True)  # refused
    await run.approve(args="all")  # refused
    await run.approve(5)  # refused
    await run.reject(reasn="no")  # refused
    await run.fork()  # refused
    await run.fork(at="3")  # refused
    await run.freeze(5)  # refused
    run.text(5)  # refused
    run.events(after="now")  # refused
    pending = await run.wait_pending()
    await pending.approve(remember=3)  # refused
    await pending.reject(3)  # refused
    pending.tol  # refused
    broken: Answer = (await run.result()).run_id  # refused
    Limits(steps="3")  # refused
    Limits(turns=3)  # refused
    Identity("t")  # refused
    Identity("t", 3, "s")  # refused
    Runtime(typed)  # refused
    Runtime([typed], storage=3)  # refused
    Runtime([typed], strage="memory:")  # refused
    Agent("a", approvals=3)  # refused
    Agent("a", model="openai:gpt-5", instructions=3)  # refused
    Agent("a", capabilities=Limits())  # refused
    Agent("a", agents=["b"])  # refused
    Agent("a", memory=3)  # refused
"""
TOOLS = """
from decimal import Decimal

from harborage import Agent, AgentContext, CallContext, Capability, Deny, Proceed, ToolCall, Verdict, tool

class Shop:
    name = "Porto"

class BigShop(Shop): ...

class Desk:
    @tool
    async def open(self, order: str) -> int:
        return 1

    @tool(effects="read")
    async def find(self, ctx: CallContext[Shop], order: str) -> bytes:
        return ctx.deps.name.encode()

    @tool
    def close(self, ctx: CallContext[Shop], order: str) -> bool:
        return True

helper = Agent("helper", output=list[int])

@tool(effects="external", approval="always")
async def refund(order: str, euros: Decimal) -> int:
    return 1

@tool(effects="read", retries=3, timeout=2.5)
async def find_order(ctx: CallContext[Shop], order: str) -> list[int]:
    reveal_type(ctx.deps)  # Shop
    ctx.deps.nam  # refused
    reveal_type(await ctx.ask("Go on?", bool))  # bool
    reveal_type(await ctx.ask("How many?", int, default=3))  # int
    reveal_type(await ctx.ask("Which?", int | None))  # int | None
    reveal_type(await ctx.run(helper, order))  # list[int]
    ctx.progress("page 1", done=1, total=3)
    ctx.progress(3)  # refused
    ctx.progress("page 1", dne=1)  # refused
    await ctx.ask(bool, "Go on?")  # refused
    await ctx.ask("Go on?")  # refused
    await ctx.ask("Go on?", bool, expires=3)  # refused
    await ctx.run("helper", order)  # refused
    await ctx.run(helper)  # refused
    ctx.who.tenant  # refused
    ctx.tool  # refused
    return []

@tool
def look(item: str, n: int = 3) -> float:
    return 2.0

@tool(name="bare")
async def loose(ctx: CallContext, item: str) -> float:
    return 2.0

def instruct(ctx: AgentContext[Shop]) -> str:
    return ctx.deps.name

async def instruct_later(ctx: AgentContext[Shop]) -> str:
    ctx.deps.nam  # refused
    return ctx.goal

class Guard(Capability):
    tools = [find_order]
    instructions = "Be brief."

    async def before_tool(self, ctx: AgentContext[Shop], call: ToolCall) -> Verdict:
        return Deny("no") if ctx.deps.name in call.args else Proceed()

    async def before_finish(self, ctx: AgentContext[Shop], output: int) -> Verdict:
        return Proceed()

class Wrong(Capability):
    async def before_tool(self, ctx: AgentContext[Shop], call: ToolCall) -> bool:  # refused
        return True

@tool(effects="wrte")  # refused
async def misspelt(a: int) -> int:
    return a

@tool(retrys=3)  # refused
async def unknown(a: int) -> int:
    return a

def plain(a: int) -> int:
    return a

async def main() -> None:
    reveal_type(await refund("7", Decimal(12)))  # int
    reveal_type(look("a", n=3))  # float
    reveal_type(await Desk().open("7"))  # int
    reveal_type(await Desk().find("7"))  # bytes
    reveal_type(Desk().close("7"))  # bool
    reveal_type(await loose("7"))  # float
    await refund(7, Decimal(2))  # refused
    await refund("7")  # refused
    look("a", k=3)  # refused
    await look("a")  # refused
    await Desk().open(7)  # refused
    await find_order("7", "8")  # refused
    free = Agent("free", tools=[refund, look, Desk().open])
    reveal_type((await free.run("go")).output)  # str
    shop = Agent("shop", tools=[refund, find_order, Desk().find, loose], deps=Shop, output=list[int])
    reveal_type((await shop.run("go", deps=Shop())).output)  # list[int]
    reveal_type((await shop.run("go", deps=BigShop())).output)  # list[int]
    await shop.session("s", deps=Shop()).send("go")
    await shop.run("go")  # refused
    await shop.start("go")  # refused
    shop.run_sync("go")  # refused
    shop.session("s")  # refused
    shop.stream("go")  # refused
    await shop.run("go", deps=3)  # refused
    await shop.run("go", deps=Shop)  # refused
    await shop.run("go", dep=Shop())  # refused
    Agent("told", deps=Shop, instructions=instruct, capabilities=[Guard()])
    Agent("told later", deps=Shop, instructions=instruct_later)
    Agent("told", deps=int, instructions=instruct)  # refused
    Agent("told", instructions=lambda: "x")  # refused
    Agent("guarded", capabilities=[Guard])  # refused
    Agent("other", tools=[find_order], deps=int)  # refused
    Agent("plain", tools=[plain])  # refused
    Agent("called", tools=[look("a")])  # refused
    await Agent("lacking", tools=[find_order]).run("go")  # refused
"""
WORKFLOWS = """
from dataclasses import dataclass
from datetime import timedelta

from harborage import Agent, CallContext, WorkflowContext, tool, workflow

class Shop: ...

@dataclass
class Report:
    text: str

@tool(effects="read")
async def price(item: str) -> int:
    return 3

@tool(effects="read")
async def of_shop(ctx: CallContext[Shop], item: str) -> float:
    return 3.0

@tool
def note(text: str) -> bool:
    return True

writer = Agent("writer", output=Report)
plain = Agent("plain", agents=[writer, writer.background(), writer.handoff()])
Agent("wrong", agents=writer)  # refused
Agent("wrong", agents=["writer"])  # refused

@workflow
async def restock(ctx: WorkflowContext[Shop], goal: str) -> Report:
    reveal_type(await ctx.call(price, item="tea"))  # int
    reveal_type(await ctx.call(price, "tea"))  # int
    reveal_type(await ctx.call(note, "tea"))  # bool
    reveal_type(await ctx.call(of_shop, item="tea"))  # float
    reveal_type(await ctx.run(writer, "go"))  # Report
    reveal_type(await ctx.gather(ctx.call(price, "tea"), ctx.run(plain, "go")))  # tuple[int, str]
    reveal_type(await ctx.run(plain, "go", output=Report))  # Report
    reveal_type(await ctx.run(writer, "go", output=list[int]))  # list[int]
    reveal_type(await ctx.model("go"))  # str
    reveal_type(await ctx.model("go", output=Report))  # Report
    reveal_type(await ctx.gather(ctx.model("go"), ctx.run(writer, "go")))  # tuple[str, Report]
    ctx.model("go").upper()  # refused
    await ctx.model(3)  # refused
    await ctx.model("go", outptu=int)  # refused
    await ctx.run(writer)  # refused
    await ctx.run(writer, 3)  # refused
    await ctx.run(writer, "go", output=3)  # refused
    await ctx.call(of_shop, item=3)  # refused
    await ctx.call(restock, "go")  # refused
    await ctx.until("tomorrow")  # refused
    await ctx.receive(3)  # refused
    await ctx.receive(timeout=3)  # refused
    await ctx.ask("Go?", bool, expires=3)  # refused
    ctx.patched(3)  # refused
    ctx.now().foo  # refused
    ctx.uuid().foo  # refused
    ctx.dep  # refused
    await ctx.spawn(writer)  # refused
    number: int = await ctx.call(note, "tea")  # accepted: a bool is an int
    text: str = await ctx.call(price, "tea")  # refused
    reveal_type(await ctx.ask("Go?", bool))  # bool
    reveal_type(await ctx.ask("How many?", int, expires=timedelta(days=1), default=3))  # int
    child = await ctx.spawn(writer, "go")
    reveal_type(await child.result())  # Report
    await ctx.call(price, itm="tea")  # refused
    await ctx.call(price)  # refused
    await ctx.call(price, 3)  # refused
    await ctx.sleep(3)  # refused
    await ctx.ask(3, bool)  # refused
    await ctx.run("writer", "go")  # refused
    return Report("done")

@workflow  # refused
async def wrong(goal: str) -> str:
    return goal

@workflow(nme="x")  # refused
async def misspelt(ctx: WorkflowContext, goal: str) -> str:
    return goal

async def main() -> None:
    reveal_type((await restock.run("go", deps=Shop())).output)  # Report
    Agent("above", agents=[restock], deps=Shop)
    await restock.run("go")  # refused
    restock.run_sync("go")  # refused
    restock.replace(3)  # refused
    await restock.run("go", deps=3)  # refused
"""


pytestmark = pytest.mark.timeout(400)  # the checkers read the whole package, on a busy machine too

PROGRAMS = {"outputs": OUTPUTS, "tools": TOOLS, "workflows": WORKFLOWS}


def test_mypy_infers_types_and_refuses_mistakes(tmp_path: Path) -> None:
    """In its strict mode: each marked line has an error, and no other line has one."""
    said = _checked(tmp_path, "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}")
    for name, program in PROGRAMS.items():
        of_program = "\n".join(line for line in said.splitlines() if line.startswith(f"{name}.py:"))
        revealed = re.findall(r'Revealed type is "(.*)"', of_program)
        assert [re.sub(rf"{name}\.|builtins\.", "", one) for one in revealed] == _inferred(program), of_program
        assert _numbers(rf"{name}\.py:(\d+): error", of_program) == _refused(program), of_program


def test_pyright_infers_types_and_refuses_mistakes(tmp_path: Path) -> None:
    """In its standard mode, as editors run it: the same lines."""
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', "utf-8")
    said = _checked(tmp_path, "basedpyright", "--pythonpath", sys.executable)
    for name, program in PROGRAMS.items():
        of_program = "\n".join(line for line in said.splitlines() if f"/{name}.py:" in line)
        revealed = re.findall(r'Type of .* is "(.*)"', of_program)
        inferred = [one.replace("Literal['yes', 'no']", "Literal['yes'] | Literal['no']") for one in revealed]
        assert inferred == _inferred(program), of_program
        assert _numbers(rf"{name}\.py:(\d+):\d+ - error", of_program) == _refused(program), of_program


def _checked(folder: Path, checker: str, *options: str) -> str:
    """What a type checker says of the programs: all at once, since it reads the package first."""
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", checker, *options, *(f"{name}.py" for name in PROGRAMS)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=380).stdout


def _numbers(pattern: str, said: str) -> set[int]:
    return {int(number) for number in re.findall(pattern, said)}


def _inferred(program: str) -> list[str]:
    return re.findall(r"reveal_type.*  # (.*)", program)


def _refused(program: str) -> set[int]:
    return {number for number, line in enumerate(program.splitlines(), 1) if line.endswith("# refused")}
