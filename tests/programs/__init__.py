"""Programs that test for minutes or hours by themselves, outside pytest: see `make help`."""
