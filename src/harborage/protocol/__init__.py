"""The Harbor Protocol as data: its methods, the codes of its errors, the shapes of its messages."""
