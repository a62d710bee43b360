"""The layers between a caller and a provider: each is an `LLMClient` around another one, and `opening` stacks them."""
