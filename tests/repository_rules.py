"""The rules of CONTRIBUTING.md that a program can check: functions that return the faults of a source text."""

import ast
import re
from collections.abc import Iterator
from functools import cache

FUNCTION_LINES = 80

# Several rules read the same file.
_parse = cache(ast.parse)

_COMPARISONS = {"allclose", "isclose", "array_equal"}
# Number of positional arguments without a tolerance: assert_allclose(a, b, 4) passes rtol=4.
_POSITIONAL = {"assert_allclose": 2, "allclose": 2, "isclose": 2, "approx": 1, "assert_almost_equal": 2}

# Folders of a particular machine; a "/work" in a formula or in a URL does not match.
_MACHINE_PATH = re.compile(r"(?<![\w.:/~*-])/(?:home|root|work|farm|Users|mnt|opt)/[\w.-]+|\b[A-Z]:\\Users\\")
# Modules whose files execute code when they are read, and built-in functions that execute text.
_UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
_UNSAFE_CALLS = {"eval", "exec", "read_pickle", "to_pickle"}
_NUMPY_FILES = {"np.load", "np.save", "np.savez", "np.savez_compressed"}
_REGISTRY = re.compile(r"index-url|find-links|trusted-host|https?://[\w.-]+/(?:[\w.-]+/)*simple\b")


def long_functions(source: str) -> list[str]:
    """Return the functions with more than FUNCTION_LINES lines, without docstrings."""
    faults = []
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node):
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if lines > FUNCTION_LINES:
                faults.append(f"line {node.lineno}: {node.name} has {lines} lines, over {FUNCTION_LINES}")
    return faults


def prints(source: str) -> list[str]:
    return [f"line {call.lineno}: print; use logging" for call, name in _calls(source) if name == "print"]


def unsafe_loading(source: str) -> list[str]:
    """Return the imports and calls by which a file could execute code when it is read."""
    faults = []
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            faults += [f"line {node.lineno}: import of {name}" for name in names & _UNSAFE_MODULES]
    for call, name in _calls(source):
        function = ast.unparse(call.func)
        words = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if function in _UNSAFE_CALLS or name in _UNSAFE_CALLS - {"eval", "exec"}:
            faults.append(f"line {call.lineno}: {name}")
        elif name == "import_module" and any("pickle" in ast.unparse(argument) for argument in call.args):
            faults.append(f"line {call.lineno}: import of a pickle module")
        elif function in _NUMPY_FILES and words.get("allow_pickle") != "False":
            faults.append(f"line {call.lineno}: {function} without allow_pickle=False")
    return faults


def comparisons_without_assert(source: str) -> list[str]:
    faults = []
    for statement in ast.walk(_parse(source)):
        if isinstance(statement, ast.Expr):
            # `allclose(a, b), "message"` is a tuple without effect.
            values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
            names = [_name(value) for value in values if isinstance(value, ast.Call)]
            faults += [f"line {statement.lineno}: {name} without assert" for name in names if name in _COMPARISONS]
    return faults


def loose_tolerances(source: str) -> list[str]:
    faults = []
    for call, name in _calls(source):
        if len(call.args) > _POSITIONAL.get(name, len(call.args)):
            faults.append(f"line {call.lineno}: a positional tolerance in {name}; name it (rtol=, atol=)")
        elif name == "assert_allclose" and not {"rtol", "atol"} & {word.arg for word in call.keywords}:
            faults.append(f"line {call.lineno}: assert_allclose without rtol= or atol=; state the accuracy meant")
    return faults


def machine_paths(text: str) -> list[str]:
    matches = [*_MACHINE_PATH.finditer(text), *_REGISTRY.finditer(text)]
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match.group()}" for match in matches]


def paper_rows(markdown: str) -> list[dict[str, str]]:
    """Return the rows of every table whose header is equation | symbol | code | test."""
    rows, header = [], None
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not line.startswith("|"):
            header = None
        elif header is None:
            header = [cell.lower() for cell in cells]
        elif header == ["equation", "symbol", "code", "test"] and not set("".join(cells)) <= set(":-"):
            rows.append(dict(zip(header, cells, strict=True)))
    return rows


def code_names(cell: str) -> list[str]:
    """Return the names in backticks in a table cell."""
    return re.findall(r"`([^`]+)`", cell)


def tests_of(source: str) -> set[str]:
    """Return the test functions of a module, methods as Class::name."""
    names = set()
    for node in _parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return {name for name in names if name.split("::")[-1].startswith("test")}


def classes(source: str) -> list[str]:
    """Return the public classes at the top level of a module."""
    body = _parse(source).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def imports(source: str, modules: set[str]) -> set[str]:
    """Return the imported modules of the package; `from a.b import c` counts as a.b.c if that is a module."""
    targets = set()
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            targets |= {name if name in modules else node.module for name in names}
    return targets & modules


def imports_past_faces(module: str, source: str, faces: dict[str, set[str]]) -> list[str]:
    """Return the imports from inside another package; `faces` maps a package to its public names.

    Modules of `kernels` are imported directly (ADR 0020). The `validate` module of a package may be imported by later
    layers, so that each check has one implementation.
    """
    faults = []
    own = module.split(".")[:2]
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Import):
            inner = [alias.name for alias in node.names if alias.name.count(".") > 1]
            faults += [
                f"line {node.lineno}: import {name}"
                for name in inner
                if name.startswith("limiirl.") and name.split(".")[:2] != own
            ]
            continue
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("limiirl."):
            continue
        parts = str(node.module).split(".")
        if parts[:2] == own or parts[1] == "kernels" or parts[1].startswith("_") or parts[1] == "errors":
            continue
        if node.module not in faces:
            faults.append(f"line {node.lineno}: {node.module} is no package; import from limiirl.{parts[1]}")
            continue
        hidden = [alias.name for alias in node.names if alias.name not in {*faces[str(node.module)], "validate"}]
        faults += [f"line {node.lineno}: {node.module} has no {name} in its __init__" for name in hidden]
    return faults


def public_names(source: str) -> set[str]:
    """Return the names that a package's __init__ imports, defines, or lists in __all__ or in a table of lazy names."""
    names = set()
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _calls(source: str) -> Iterator[tuple[ast.Call, str]]:
    return ((node, _name(node)) for node in ast.walk(_parse(source)) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
