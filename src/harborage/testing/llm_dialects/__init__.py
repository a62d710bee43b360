"""The protocols that the scripted model server speaks, one file each, and the words they share in `lines`."""
