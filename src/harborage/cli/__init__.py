"""The `harborage` command: one file a command. It only calls what `app` builds."""
