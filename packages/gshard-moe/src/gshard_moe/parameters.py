"""A layer's parameters as a tree: their names and shapes, checked, out of and back into a state.

A tree is what `nnx.to_pure_dict(nnx.state(layer))` returns, or the `nnx.State` itself; stacked
layers have one leading axis. A dense feed-forward block has the same names without the experts'
axis and without router.

Axes: E experts, M model width, H hidden width.
"""

from collections.abc import Collection, Mapping
from typing import Any

from flax import nnx
from jaxtyping import Array

# Of MoELayer; beginnings are layers.
AXES = {"router": "ME", "wi": "EMH", "wo": "EHM", "gate": "EMH", "bi": "EH", "bo": "EM", "bg": "EH"}
DENSE_AXES = {name: axes.replace("E", "") for name, axes in AXES.items() if name != "router"}


def arrays_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays by name, without Flax's variables around them."""
    return {
        name: leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf
        for name, leaf in parameters.items()
    }


def in_tree_of(parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """The arrays as such a tree: in a state they have the metadata (logical names) they had."""
    leaves = {
        name: leaf.replace(arrays[name]) if isinstance(leaf, nnx.Variable) else arrays[name]
        for name, leaf in parameters.items()
    }
    return nnx.State(leaves) if isinstance(parameters, nnx.State) else leaves


def parameter_faults(
    arrays: Mapping[str, Any],
    axes: Mapping[str, str] = AXES,
    *,
    needed: Collection[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    layers: int | None = None,
) -> list[str]:
    """What keeps these arrays from being one layer's parameters, one sentence each.

    Args:
      arrays: By name.
      axes: `AXES` or `DENSE_AXES`.
      needed: Which there must be, and no others; None for any that go together.
      sizes: Of axes that are known beforehand.
      layers: Size of the leading axis; None for one that may be there or not, 0 for none.
    """
    faults = _name_faults(arrays, axes, needed)
    if faults:
        return faults
    lead, known = _sizes(arrays["wi"].shape, axes["wi"], sizes or {})
    if layers is not None:
        lead = (layers,) if layers else ()
    for name, array in arrays.items():
        needs = (*lead, *(known.get(axis, 0) for axis in axes[name]))
        if tuple(array.shape) != needs:
            faults.append(f"{name} has shape {tuple(array.shape)}, needed is {needs}")
    return faults


def _name_faults(
    arrays: Mapping[str, Any], axes: Mapping[str, str], needed: Collection[str] | None
) -> list[str]:
    if needed is None:
        needed = {"router", "wi", "wo"} & set(axes) | {"gate"} & set(arrays)
        if {"bi", "bo", "bg"} & set(arrays):
            needed |= {"bi", "bo"} | ({"bg"} if "gate" in arrays else set())
    faults = []
    if missing := [name for name in axes if name in needed and name not in arrays]:
        faults.append(f"missing {', '.join(missing)}")
    if surplus := [name for name in arrays if name not in needed]:
        faults.append(f"surplus {', '.join(surplus)}")
    return faults


def _sizes(
    shape: tuple[int, ...], axes: str, given: Mapping[str, int]
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The sizes before the axes of `wi`, and those of its axes where they are not given."""
    lead = shape[: max(0, len(shape) - len(axes))][:1]
    return lead, dict(zip(axes, shape[len(lead) :], strict=False)) | dict(given)
