"""AG-UI: agents for the user interfaces that speak the Agent User Interaction Protocol, version 1.0."""
