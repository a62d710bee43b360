"""The paths that clients of OpenAI know, `/v1/chat/completions` and `/v1/responses`, over the agents of a runtime."""
