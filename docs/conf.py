"""How the site is built from these pages: `make site`. It needs nothing from outside, and neither does its reader."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from typing import Any

import harborage

project = "Harborage"
author = "the authors of Harborage"
version = release = harborage.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "Harborage"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autosummary_generate = False
add_module_names = False
python_use_unqualified_type_names = True
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# The signatures of these two name types that their modules import for type checkers alone.
for _kind in (harborage.CallContext, harborage.RunContext):
    _module = sys.modules[_kind.__module__]
    for _part in ast.parse(inspect.getsource(_module)).body:
        if isinstance(_part, ast.If) and ast.unparse(_part.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(_part.body, []), str(_module.__file__), "exec"), vars(_module))

_CODE = re.compile(r"``.+?``|`[^`]+`")


def _as_restructured_text(app: Any, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with Markdown's `code`: of that nothing else may mean anything."""
    lines[:] = [_escaped(line) for line in lines]


def _escaped(line: str) -> str:
    parts, end = [], 0
    for code in _CODE.finditer(line):
        parts += [_plain(line[end : code.start()]), "``" + code[0].strip("`") + "``"]
        end = code.end()
    return "".join([*parts, _plain(line[end:])])


def _plain(text: str) -> str:
    return re.sub(r"([*|\\`]|(?<=\w)_(?!\w))", r"\\\1", text)


def setup(app: Any) -> None:
    """Read docstrings before the section of what they raise is taken apart."""
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)
