"""What users call says what it does and what it takes: docstrings and type hints, for editors and type checkers."""

import ast

import gapless
import pytest
from conftest import ROOT

PACKAGE = ROOT / "python" / "gapless"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))
# What the issue and the documents promise at the top of the package.
PROMISED = (
    "enable disable is_enabled pool stats memory_summary explain configure info defragment hint_cold reserve_host sleep wake "
    "offload_activations offload_optimizer Heap default_heap OutOfMemoryError ConfigError NotSupportedError"
).split()


def functions_of(body, public, prefix=""):
    """(name, node, is it public) of functions, methods and classes; what is inside functions is nobody's."""
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        shown = public and not node.name.startswith("_")
        yield prefix + node.name, node, shown
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node.body, shown, f"{prefix}{node.name}.")


def without_hints(node):
    taken = node.args
    arguments = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, *filter(None, (taken.vararg, taken.kwarg))]
    bare = [one.arg for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
    return bare + (["return"] if node.returns is None else [])


@pytest.mark.parametrize("module", MODULES)
def test_hints_and_docstrings(module):
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for name, node, shown in functions_of(tree.body, module == "__init__" or not module.startswith("_")):
        assert not shown or ast.get_docstring(node), f"{module}.{name} has no docstring"
        assert isinstance(node, ast.ClassDef) or not without_hints(node), f"{module}.{name}: {without_hints(node)}"


def test_hints_are_for_type_checkers():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names(name):
    found = getattr(gapless, name)
    assert name in gapless.__all__ and callable(found) and found.__doc__
