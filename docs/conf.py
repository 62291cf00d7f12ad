"""Sphinx configuration; `make docs` builds with warnings as errors."""

from pathlib import Path

import typer
from typer.cli import get_docs_for_click

import limiirl
from limiirl.cli import build_commands

project = "limiirl"
author = "limiirl contributors"
copyright = "2026, limiirl contributors"
release = version = limiirl.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "results"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"limiirl {release}"

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

autosummary_generate = True
# The public names are re-exported by `limiirl`, each from the module that defines it.
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False


def _skip_metadata_requests(*event):
    """Omit the methods that scikit-learn adds to estimators, because they refer to the scikit-learn glossary."""
    name = event[2]
    return True if name.endswith("_request") else None


def _write_commands(app):
    """Write the reference of the command line from the help texts of the commands."""
    command = build_commands()
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command, info_name="limiirl"), name="limiirl", title="Command line"
    )
    target = Path(app.srcdir) / "api" / "commands.md"
    target.parent.mkdir(exist_ok=True)
    # Metavariables such as <int> are not HTML.
    target.write_text(text.replace("<", "&lt;"), encoding="utf-8")


def setup(app):
    """Register the event handlers with Sphinx."""
    app.connect("builder-inited", _write_commands, priority=100)
    app.connect("autodoc-skip-member", _skip_metadata_requests)


# Sphinx resolves the words of "array, shape (d,)" as references, and several worlds have an attribute `shape`.
suppress_warnings = ["ref.python"]
