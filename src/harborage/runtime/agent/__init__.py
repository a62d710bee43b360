"""An agent's effects: what the steps of the run loop do, with live planners, tools, tasks and pauses behind them."""
