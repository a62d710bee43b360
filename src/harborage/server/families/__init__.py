"""What each family of methods does, over the parts of an open runtime."""
