"""What each package offers at its top: a new name is a decision, made here and in its changelog.

A name that is listed stays importable until a version that may break it.
"""

import ast
import importlib
import itertools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = {
    "gshard_annotate": {
        "AnnotationWarning",
        "Collective",
        "DEFAULT_RULES",
        "Padded",
        "Report",
        "Rules",
        "__version__",
        "annotate",
        "annotate_tree",
        "checks",
        "collectives",
        "diff",
        "expect_collectives",
        "halo_exchange",
        "inspect",
        "make_mesh",
        "manual",
        "mesh_split",
        "names_by_path",
        "pad_to_split",
        "partial",
        "replicate",
        "rules_scope",
        "shard",
        "split",
        "sum_partials",
        "topology_devices",
        "tree_shardings",
        "tree_specs",
    },
    "gshard_moe": {
        "ExpertChoice",
        "ExpertRouting",
        "LabelStatistics",
        "MoELayer",
        "MoEOutput",
        "Router",
        "Routing",
        "Sorted",
        "Statistics",
        "Top2",
        "TopK",
        "__version__",
        "auxiliary_loss",
        "balance_loss",
        "capacity",
        "combine_einsum",
        "combine_gather",
        "combine_sorted",
        "dispatch_einsum",
        "dispatch_gather",
        "dispatch_sorted",
        "expert_choice",
        "explain_capacity",
        "group",
        "probabilities",
        "raise_if_not_finite",
        "router_z_loss",
        "sort",
        "statistics",
        "statistics_by_label",
        "summary",
        "top1",
        "top2",
        "topk",
        "ungroup",
    },
    # its modules are the interface, so that importing the package stays instant
    "gshard_train": {"__version__"},
    "gshard_m4": {"__version__"},
}


def offered(package: str) -> dict[str, int]:
    """Names that the package's `__init__.py` re-exports or defines, with their lines."""
    path = ROOT / "packages" / package.replace("_", "-") / "src" / package / "__init__.py"
    names = {}
    body = ast.parse(path.read_text("utf-8")).body
    # Names that are loaded when asked for are imported for type checkers alone.
    later = [node.body for node in body if isinstance(node, ast.If)]
    for node in itertools.chain(body, *later):
        match node:
            case ast.ImportFrom(module=module, names=aliases) if module.startswith(package):
                assert all(alias.asname == alias.name for alias in aliases), (
                    f"{path.name} line {node.lineno}: write `from x import y as y`"
                )
                names |= {alias.name: node.lineno for alias in aliases}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = node.lineno
            case ast.Assign(targets=[ast.Name(id=name)]):
                names[name] = node.lineno
    return {n: line for n, line in names.items() if not n.startswith("_") or n == "__version__"}


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_are_the_listed_ones(package: str) -> None:
    assert set(offered(package)) == PUBLIC[package]


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_exist_and_are_described(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    undescribed = [
        name
        for name in PUBLIC[package]
        if callable(value := getattr(module, name)) and not value.__doc__
    ]
    assert not undescribed


@pytest.mark.parametrize("package", PUBLIC)
def test_the_version_is_the_installed_one_and_in_the_changelog(package: str) -> None:
    module = importlib.import_module(package)
    folder = ROOT / "packages" / package.replace("_", "-")
    assert f'version = "{module.__version__}"' in (folder / "pyproject.toml").read_text("utf-8")
    assert f"## {module.__version__}" in (folder / "CHANGELOG.md").read_text("utf-8").replace(
        "[", ""
    )
