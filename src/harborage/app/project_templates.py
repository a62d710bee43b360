"""The texts of new projects. `new_project` fills in `$NAME` and its like; everything else is as it is written."""

from __future__ import annotations

from typing import Final

CONFIG: Final = """\
# The configuration of $NAME, which `harborage serve` reads. Check it with: harborage validate
# A variable wins over this file: HARBORAGE_STATE_DSN sets state.dsn.

identity: # who may call the server; tokens are signed by your identity provider
  jwt_algorithms: [ES256]
  issuer: $NAME
  audience: harbor
  jwks_file: .harborage/jwks.json # the public keys, or jwks_url: https://…

state: # where runs are kept; postgres is for several servers
  driver: sqlite
  dsn: .harborage/harborage.db

llm: # the model of agents that name none
  provider: openai
  model: gpt-5
  api_key: env:OPENAI_API_KEY # a reference: no key stands in this file

server:
  bind_addr: 127.0.0.1:8080
"""

AGENT: Final = '''\
"""The agent of $NAME. Talk with it: harborage chat"""

from __future__ import annotations

import os

from harborage import Agent, tool
from harborage.testing import call, script

ORDERS = {"7": "one teapot, arrived broken", "8": "two cups, on their way"}

# Without a key these answers are given instead of those of a model.
CANNED = script(
    call("find_order", order="7"),
    "Order 7 is one teapot, and it arrived broken. (This answer is canned, for no model is set up: "
    "export OPENAI_API_KEY=… or ANTHROPIC_API_KEY=…, or name one with --model, such as --model ollama:qwen3.)",
)
HAS_KEY = any(os.environ.get(name) for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"))


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order by its number."""
    return f"order {order}: {ORDERS.get(order, 'unknown')}"


agent = Agent(
    "$NAME",
    model=None if HAS_KEY else CANNED,
    instructions="Help people with their orders. Be brief.",
    tools=[find_order],
    approvals="writes",
)
'''

AGENT_TEST: Final = '''\
"""The agent, with a script in the place of its model: no key and no network is needed."""

from pathlib import Path

from harborage.app import load_agent
from harborage.testing import call, script

agent = load_agent(str(Path(__file__).parents[1] / "agent.py"))


def test_the_agent_looks_an_order_up() -> None:
    """It calls its tool, and answers with what it found."""
    model = script(call("find_order", order="8"), "Your cups are on their way.")
    result = agent.run_sync("Where is order 8?", model=model)
    assert result.messages[-2].text == "order 8: two cups, on their way"
    assert result.output == "Your cups are on their way."
'''

MAKEFILE: Final = """\
PYTHON ?= python3

.PHONY: test chat check

test: ## run the tests; they need no key
\t$(PYTHON) -m pytest -q

chat: ## talk with the agent
\tharborage chat

check: ## check the configuration
\tharborage validate
"""

README: Final = """\
# $NAME

An agent that runs on [Harborage](https://pypi.org/project/harborage/): durable, steerable, and tested without a model.

    make test         # the tests; they need no key
    harborage chat    # talk with it

Without a key it gives canned answers and says so. With a model:

    export OPENAI_API_KEY=…
    harborage chat
    harborage chat --model ollama:qwen3

| File | What it is |
|---|---|
| `agent.py` | the agent and its tool: begin here |
| `tests/test_agent.py` | a test with a script in the place of the model |
| `harborage.yaml` | the configuration of a server; `harborage validate` checks it |
| `AGENTS.md`, `CLAUDE.md` | what a coding assistant should know |

Every run is kept in `.harborage/`. `harborage runs list` shows them, `harborage resume` goes on with one that was
stopped, and `harborage pending` lists calls that wait for your approval.
"""

ASSISTANTS: Final = """\
# $NAME

An agent on Harborage. `agent.py` has the agent, called `agent`, and its tools.

- A tool is a typed function with `@tool(effects=…)`: `read` for what changes nothing, else `write` or `external`.
  Its name, docstring and parameters are what the model sees, so they are written for the model.
- Tests put `harborage.testing.script` in the place of the model: no key, no network. Run them with `make test`.
- No key stands in a file. `harborage.yaml` has references such as `env:OPENAI_API_KEY`; `harborage validate` checks it.
- Runs are kept in `.harborage/`, which is no part of the repository.
- `harborage run agent.py "GOAL"` runs the agent once, `harborage chat` holds a conversation.
"""

# ── scaffold ────────────────────────────────────────────────────────────────────────────────────────────────────────

SCAFFOLD_AGENT: Final = '''\
"""The agent of $NAME."""

from __future__ import annotations

from harborage import Agent
$IMPORTS
agent = Agent(
    "$NAME",
    instructions="Do what you are asked. Be brief.",
    tools=[$TOOLS],
    approvals="writes",
)
'''

SCAFFOLD_AGENT_TEST: Final = '''\
"""The agent, with a script in the place of its model: no key and no network is needed."""

from agent import agent

from harborage.testing import script


def test_the_agent_answers() -> None:
    """It gives the model's answer."""
    assert agent.run_sync("Hello", model=script("Hello.")).output == "Hello."
'''

SCAFFOLD_CONFTEST: Final = '''\
"""Pytest finds the agent and its tools from here."""
'''

SCAFFOLD_README: Final = """\
# $NAME

An agent on Harborage.

    make test                          # the tests; they need no key
    harborage validate                 # check harborage.yaml
    harborage run agent.py "Hello"     # run it once
$STUBS
| File | What it is |
|---|---|
| `agent.py` | the agent |
| `tools/` | its tools, one file each, with a test in `tests/` |
| `harborage.yaml` | the configuration of a server |
"""

SCAFFOLD_STUBS: Final = """
The tools in `tools/` are stubs: each has the arguments and the result that `harborage.yaml` declares, and returns
empty values until you write it.
"""

TOOL: Final = '''\
"""The tool $TOOL, as harborage.yaml declares it."""

from __future__ import annotations
$TYPING
from harborage import tool
$RESULT
@tool(name=$QUOTED, effects="external")
def $FUNCTION($PARAMETERS) -> $TYPE:
    $DOCSTRING
    return $EMPTY  # write it here
'''

TOOL_TEST: Final = '''\
"""The tool $TOOL."""

from tools.$MODULE import $FUNCTION


def test_$FUNCTION_returns_what_is_declared() -> None:
    """The stub has the declared arguments and result."""
    assert $FUNCTION($ARGUMENTS) == $EMPTY
'''
