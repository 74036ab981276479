"""The stub matches the compiled module: classes, methods, parameters, defaults, docstrings."""

import ast
import inspect
import pathlib

import omnes
from omnes import _omnes



def check_document(name, actual, node):
    """Asserts that help() and editors show the same text."""
    document = inspect.cleandoc(actual.__doc__ or "")
    described = ast.get_docstring(node) or ""
    assert document == described, f"{name}: {document!r} is not {described!r}"


stub = ast.parse(pathlib.Path(_omnes.__file__).with_name("_omnes.pyi").read_text())
classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
compiled = {name for name, value in vars(_omnes).items() if inspect.isclass(value)}
assert compiled == set(classes), compiled ^ set(classes)
functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
compiled_functions = {name for name, value in vars(_omnes).items() if inspect.isbuiltin(value)}
assert compiled_functions == set(functions), compiled_functions ^ set(functions)
assert set(omnes.__all__) == compiled | compiled_functions | {"__version__"}

check_document("_omnes", _omnes, stub)
for name, node in functions.items():
    check_document(name, getattr(_omnes, name), node)
    parameters = inspect.signature(getattr(_omnes, name)).parameters
    assert list(parameters) == [each.arg for each in node.args.args], (name, list(parameters))

for name, described in classes.items():
    actual = getattr(_omnes, name)
    check_document(name, actual, described)
    if issubclass(actual, BaseException):
        bases = [base.__name__ for base in actual.__bases__]
        assert [base.id for base in described.bases] == bases, (name, bases)
        continue
    methods = {node.name: node for node in described.body if isinstance(node, ast.FunctionDef)}
    present = {each for each in vars(actual) if not each.startswith("_")}
    assert present == {each for each in methods if not each.startswith("_")}, name
    if "__init__" in methods:
        wanted = [each.arg for each in methods.pop("__init__").args.args[1:]]
        assert list(inspect.signature(actual).parameters) == wanted, name
    for method, node in methods.items():
        check_document(f"{name}.{method}", getattr(actual, method), node)
        decorators = {decorator.id for decorator in node.decorator_list}
        if "property" in decorators:
            continue
        parameters = inspect.signature(getattr(actual, method)).parameters
        wanted = node.args.args + [node.args.vararg] * bool(node.args.vararg) + node.args.kwonlyargs
        assert list(parameters) == [each.arg for each in wanted], (name, method, list(parameters))
        for keyword, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
            parameter = parameters[keyword.arg]
            assert parameter.kind is parameter.KEYWORD_ONLY, (name, method, keyword.arg)
            assert parameter.default == ast.literal_eval(default), (name, method, keyword.arg)
        defaults = [ast.literal_eval(default) for default in node.args.defaults]
        plain = [each for each in parameters.values() if each.kind is not each.KEYWORD_ONLY]
        given = [each.default for each in plain if each.default is not each.empty]
        assert given == defaults, (name, method, given)
