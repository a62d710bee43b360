import asyncio

from harborage import Agent, AgentContext, Capability, Guide, Proceed, ToolCall, Transform, Verdict, tool


@tool(effects="external")
def mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent: {text}"


class Discretion(Capability):
    """Keeps numbers of cards out of mails, and wants a polite answer."""

    async def before_tool(self, ctx: AgentContext[None], call: ToolCall) -> Verdict:
        text = call.args.get("text", "").replace("4111 1111", "…")
        return Transform({**call.args, "text": text})

    async def before_finish(self, ctx: AgentContext[None], output: str) -> Verdict:
        return Proceed() if "please" in output.lower() else Guide("say please")


clerk = Agent("clerk", model="openai:gpt-5", tools=[mail], capabilities=[Discretion()])


async def main() -> None:
    result = await clerk.run("Confirm Ada's order")
    print(result.messages[-2].text)
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
# > sent: Paid with card … 1111 1111.
# > Done. Please look at the confirmation.
