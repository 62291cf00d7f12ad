"""Sphinx configuration; `make docs` builds with warnings as errors."""

import limiirl

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
]
exclude_patterns = ["_build", "results"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"limiirl {release}"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True

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


def setup(app):
    """Register the event handler with Sphinx."""
    app.connect("autodoc-skip-member", _skip_metadata_requests)


# Sphinx resolves the words of "array, shape (d,)" as references, and several worlds have an attribute `shape`.
suppress_warnings = ["ref.python"]
