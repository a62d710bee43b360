from dataclasses import dataclass

from harborage import Agent


@dataclass
class Ticket:
    title: str
    urgent: bool


triage = Agent("triage", model="openai:gpt-5", output=Ticket)
print(triage.run_sync("My teapot arrived broken!").output)
# > Ticket(title='Broken teapot', urgent=True)
