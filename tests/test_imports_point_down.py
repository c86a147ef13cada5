"""annotate <- moe <- train; m4 stands beside them, light until its seqio tasks are asked for."""

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# the siblings that each package may import
ALLOWED = {
    "gshard_annotate": set(),
    "gshard_moe": {"gshard_annotate"},
    "gshard_train": {"gshard_annotate", "gshard_moe"},
    "gshard_m4": set(),
}
HEAVY = {"flax", "jax", "optax", "orbax", "seqio", "tensorflow", "tensorflow_text"}
SEQIO_MODULES = {"gshard_m4.tasks", "gshard_m4.tasks.registry", "gshard_m4.tasks.sources"}
SEQIO_MODULES |= {"gshard_m4.sample.tasks"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Name and syntax tree of every module of the four packages."""
    for package in ALLOWED:
        source = ROOT / "packages" / package.replace("_", "-") / "src"
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text("utf-8"))


def imported(node: ast.AST, module: str) -> Iterator[str]:
    """Full names that an import statement, or `import_module("...")`, brings in."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=name, level=0) if name:
            yield name
        case ast.ImportFrom():
            raise AssertionError(f"{module} line {node.lineno}: write imports with full names")
        case ast.Call(
            func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]
        ):
            yield name


def at_module_level(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_module_level(child)


MODULES = dict(sources())


def test_every_package_was_found() -> None:
    assert {name.split(".")[0] for name in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("package", ALLOWED)
def test_siblings_are_imported_downwards_only(package: str) -> None:
    allowed = ALLOWED[package] | {package}
    upwards = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if module.split(".")[0] == package
        for node in ast.walk(tree)
        for name in imported(node, module)
        if name.startswith("gshard_") and name.split(".")[0] not in allowed
    ]
    assert not upwards, f"allowed for {package}: {sorted(allowed)}"


def test_m4_is_light_at_module_level() -> None:
    heavy = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if module.startswith("gshard_m4") and module not in SEQIO_MODULES
        for node in at_module_level(tree)
        for name in imported(node, module)
        if name.split(".")[0] in HEAVY
    ]
    assert not heavy, "JAX, TensorFlow and seqio are for the seqio tasks only"


def test_the_trainers_package_file_imports_the_standard_library_only() -> None:
    names = {
        name.split(".")[0]
        for node in ast.walk(MODULES["gshard_train"])
        for name in imported(node, "gshard_train")
    }
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "module",
    ["gshard_train.train", "gshard_train.infer", "gshard_train.config", "gshard_m4.cli"],
)
def test_command_lines_start_without_heavy_imports(module: str) -> None:
    code = f"import sys, {module}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"{module} answers --help late"


@pytest.mark.parametrize("module", ["gshard_annotate", "gshard_moe"])
def test_annotate_and_moe_never_import_the_trainers_libraries(module: str) -> None:
    unwanted = {"gin", "seqio", "tensorflow", "optax", "orbax", "gshard_train", "gshard_m4"}
    # flax itself imports optax and orbax where they are installed
    unwanted -= {"optax", "orbax"} if module == "gshard_moe" else set()
    names = [name for name in MODULES if name.split(".")[0] == module]
    code = f"import sys, {', '.join(names)}; print(sorted({unwanted!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
