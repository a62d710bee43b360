"""The front door for people: the `harborage` command, one file a command. It only calls what the workshop builds."""
