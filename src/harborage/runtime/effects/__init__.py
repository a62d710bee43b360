"""What the steps of an agent's run do: plan, call tools, ask for approval, pause, spawn, remember."""
