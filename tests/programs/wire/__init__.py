"""What the server promises at full size, with real processes and sockets: `python -m tests.programs.wire`."""
