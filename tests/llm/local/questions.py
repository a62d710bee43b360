"""The fixed set: sixteen questions that one of the six standard tools answers. Kept as they are, so figures compare.

They were written before the prompt was tuned, and nothing in the prompt is taken from them.
"""

from __future__ import annotations

from typing import Final

TOOLS: Final = ("calculator", "clock", "list_files", "read_file", "search_files", "http_get")

QUESTIONS: Final = (
    ("What is 17 * 23?", "calculator"),
    ("What is the square root of 1764?", "calculator"),
    ("How much is 15% of 240?", "calculator"),
    ("What time is it in Tokyo right now?", "clock"),
    ("Which day of the week is it today?", "clock"),
    ("What is the current date?", "clock"),
    ("Which files are in the docs folder?", "list_files"),
    ("Show me all Python files of the project.", "list_files"),
    ("What does the file README.md say?", "read_file"),
    ("Open config/settings.toml and tell me what is in it.", "read_file"),
    ("Read me the first lines of notes.txt.", "read_file"),
    ('Where in the files does the word "deadline" occur?', "search_files"),
    ("Find the lines that mention TODO.", "search_files"),
    ('Which files contain the text "import asyncio"?', "search_files"),
    ("What is on the page https://example.com?", "http_get"),
    ("Fetch https://www.python.org/about/ and tell me what it is about.", "http_get"),
)
"""What is asked, and the tool that answers it."""
