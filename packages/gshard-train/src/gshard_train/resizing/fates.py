"""What becomes of each tensor of a checkpoint: the plan, and the functions that carry it out."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gshard_train.resizing import second_moments
from gshard_train.resizing.change import Change, Kind
from gshard_train.resizing.experts import Path, at, moe_layers
from gshard_train.resizing.second_moments import FIELDS, Moments
from gshard_train.state import TrainState

# Of optax's states: means of gradients (Adam, Lion, momentum), and of their squares.
_KINDS: Mapping[str, Kind] = {
    "mu": "gradient",
    "trace": "gradient",
    "nu": "square",
    "sum_of_squares": "square",
}


class Fate(NamedTuple):
    """Where one tensor of the new state comes from.

    `make` takes the old tensors named in `sources`; None where the tensor is kept as it is, or is
    the optimizer's own first one (`is_fresh`).
    """

    path: Path
    before: tuple[int, ...] | None
    after: tuple[int, ...]
    words: str
    sources: tuple[Path, ...]
    make: Callable[..., Array] | None = None
    is_fresh: bool = False


class Names(NamedTuple):
    """The logical names of the dimensions of parameters, before and after."""

    before: Any
    after: Any


def by_path(tree: Any) -> dict[Path, Any]:
    """The leaves of a tree by the names on their way."""
    return {
        tuple(jax.tree_util.keystr((key,), simple=True) for key in path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def fates(change: Change, old: TrainState, new: TrainState, names: Names) -> list[Fate]:
    """The fate of each tensor of the new state, in its order.

    Args:
      change: from the old number of experts to the new one.
      old: shapes of the state that was saved.
      new: shapes of the one that becomes of it.
      names: of the parameters.
    """
    before, layers = by_path(old), moe_layers(new.params)
    made = []
    for path, leaf in by_path(new).items():
        number = next((i for i, each in enumerate(layers) if _is_in(path, each)), None)
        if number is None:
            had = before[path]
            made.append(Fate(path, tuple(had.shape), tuple(leaf.shape), "kept", (path,)))
        else:
            layer = layers[number]
            own = Names(at(names.before, layer), at(names.after, layer))
            made.append(_changed(change, before, old, path, leaf, layer, number, own))
    return made


def table(found: Sequence[Fate]) -> str:
    """The plan as lines, what changes first."""
    rows = [("tensor", "from", "to", "what becomes of it")]
    for fate in sorted(found, key=lambda fate: fate.words == "kept"):
        was = "-" if fate.before is None else _shape(fate.before)
        rows.append(("/".join(fate.path), was, _shape(fate.after), fate.words))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _changed(
    change: Change,
    before: Mapping[Path, Any],
    old: TrainState,
    path: Path,
    leaf: Any,
    layer: Path,
    number: int,
    names: Names,
) -> Fate:
    """The fate of a tensor that belongs to a parameter of a MoE layer."""
    *prefix, name = path[: -1 - len(layer)] + path[-1:]
    shapes, had = at(old.params, layer), before.get(path)
    fate = functools.partial(Fate, path, had and tuple(had.shape), tuple(leaf.shape))
    if prefix == ["params"]:

        def parameter(array: Array | None = None) -> Array:
            made = change.changed(name, shapes, array, "parameter", number)
            return change.noisy(name, made, number)

        return fate(change.words(name, "parameter"), (path,) if had else (), parameter)
    if change.how == "upcycle" and name == "router":
        words = "new: 0, a new router has no past"
        return fate(words, (), lambda: jnp.zeros(leaf.shape, leaf.dtype))
    field, root = prefix[-1], tuple(prefix[:-1])
    if kind := _KINDS.get(field):
        make = functools.partial(change.changed, name, shapes, kind=kind)
        if had is not None and had.shape == shapes[name].shape:
            return fate(_words(change, name, kind), (path,), make)
    siblings = tuple((*root, each, *path[len(prefix) :]) for each in FIELDS)
    if field in FIELDS and all(each in before for each in siblings):
        kept = Moments(*(before[each] for each in siblings))
        if made := _factored(change, name, shapes, kept, leaf, field, names):
            words, make = made
            return fate(words, siblings, make)
    return fate("new: what an optimizer keeps here is not known", (), is_fresh=True)


def _factored(
    change: Change,
    name: str,
    shapes: Mapping[str, Any],
    kept: Moments,
    leaf: Any,
    field: str,
    names: Names,
) -> tuple[str, Callable[..., Array]] | None:
    """How one array of a factored moment is made of the three; None where they are none."""
    old_shape = tuple(shapes[name].shape)
    view = second_moments.view_of(kept, old_shape, tuple(names.before[name]))
    made = jax.eval_shape(
        functools.partial(change.changed, name, shapes, kind="square"), shapes[name]
    )
    if view is None:
        return None
    if view.mapped:
        after = second_moments.matrix_view(made.shape, tuple(names.after[name]))
    else:
        after = second_moments.MatrixView(0, made.shape, tuple(names.after[name]))

    def make(*arrays: Array) -> Array:
        whole = second_moments.whole(Moments(*arrays), view, old_shape)
        moment = change.changed(name, shapes, whole, "square")
        return second_moments.kept_of(moment, field, after, tuple(leaf.shape))

    nothing = second_moments.is_nothing(tuple(leaf.shape), after)
    return "0: the optimizer keeps nothing here" if nothing else _words(
        change, name, "square"
    ), make


def _words(change: Change, name: str, kind: Kind) -> str:
    return change.words(name, kind) + ("" if change.is_exact(name, kind) else ", about")


def _is_in(path: Path, layer: Path) -> bool:
    return path[-1 - len(layer) : -1] == layer


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "number"
