"""Settings of Sphinx: `python -m pip install '.[docs]'`, then `sphinx-build -W -b html docs build/docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import streamsvm

project = "streamsvm"
version = release = streamsvm.__version__
author = "The streamsvm developers"
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the text says what a parameter takes, with shapes and units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the pages name the methods that they show

html_theme = "pydata_sphinx_theme"
html_title = f"streamsvm {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"**": ["globaltoc"]}  # all pages, not only those of a section
html_theme_options = {
    "navbar_center": [],
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "use_edit_page_button": False,
}

SECTION = re.compile(r"^-{3,}$")
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[\w./-]+\.md)(?:#[\w-]*)?\)")
PARAMETER = re.compile(r"^[*\w, ]+( : .*)?$")


def read_as_plain_text(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Escape what docstrings hold of reStructuredText's signs: |w|, coef_, `tol` and y_i are meant as they stand.

    Formulas are blocks that are indented after a paragraph: they become literal blocks. Sections of numpydoc are left
    to the extension numpydoc, which comes after this.
    """
    prepared: list[str] = []
    in_formula = False
    for k, line in enumerate(lines):
        before = next((one for one in reversed(lines[:k]) if one.strip()), "")
        starts = line.startswith("    ") and (k == 0 or not lines[k - 1].strip())
        if starts and not in_formula and before and not before.startswith(" ") and not SECTION.match(before):
            prepared += ["::", ""]
            in_formula = True
        elif line.strip() and not line.startswith(" "):
            in_formula = False
        prepared.append(line if in_formula else escape(line))
    lines[:] = prepared


def escape(line: str) -> str:
    """Return a line of prose without signs that reStructuredText would take for its own; `x` becomes ``x``."""
    if SECTION.match(line) or (PARAMETER.match(line) and (" : " in line or "_" not in line)):
        return line
    pieces = re.split(r"(`+[^`]+`+)", line)
    pieces[0::2] = [re.sub(r"([|*\\])|(?<=\w)(_)(?!\w)", r"\\\1\2", piece) for piece in pieces[0::2]]
    pieces[1::2] = [f"``{piece.strip('`')}``" for piece in pieces[1::2]]
    return "".join(pieces)


def link_files_outside(app: Any, docname: str, source: list[str]) -> None:
    """Let links to Markdown files outside of docs/ lead to the files, as MyST does for files of other kinds."""
    root = Path(app.srcdir)

    def link(found: re.Match[str]) -> str:
        is_page = (root / docname).parent.joinpath(found[2]).resolve().is_relative_to(root)
        return found[0] if is_page else f"{{download}}`{found[1]} <{found[2]}>`"

    source[0] = LINK.sub(link, source[0])


def write_formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers show by themselves: MathJax would be loaded from elsewhere."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Connect `link_files_outside`, `write_formula`, and `read_as_plain_text` before numpydoc (of priority 500)."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", link_files_outside)
    app.connect("autodoc-process-docstring", read_as_plain_text, priority=400)
