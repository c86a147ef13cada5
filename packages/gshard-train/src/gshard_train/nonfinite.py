"""Which tensors of a step hold NaN or Inf: found in the compiled step, named on the host.

Axes: P pieces: the tensors of the model, of stacked ones each layer (pair of layers) by itself.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gshard_train.state import Model

STACKED = "layer"
LOSS_TERMS = ("loss", "z_loss", "balance_loss", "router_z_loss", "total_loss")
# The model's order, from the source to the logits; what is not listed comes behind, by name.
_ORDER = (
    *("source_embedding", "encoder", "encoder_norm"),
    *("target_embedding", "decoder", "decoder_norm", "output"),
    *("self_norm", "self_attention", "attention_norm", "attention"),
    *("cross_norm", "cross_attention", "feed_forward"),
    *("norm", "layer", "router", "wq", "wk", "wv", "wi", "wo"),
)
_IN_PAIR = {"first": 0, "second": 1}


class Piece(NamedTuple):
    """A tensor, or one layer of a stacked one."""

    path: tuple[str, ...]
    number: int | None  # along the axis of stacked layers

    def __str__(self) -> str:
        name = "/".join(self.path)
        if self.number is None:
            return name
        layer = 2 * self.number + next(_IN_PAIR[n] for n in self.path if n in _IN_PAIR)
        return f"{name}[{self.number}] (layer {layer})"


def sums_of_squares(tree: Any, names: Any) -> Float[Array, " P"]:
    """The sum of squares of each piece, which is not finite where the piece is not.

    Nor is it for numbers above 1.8e19, whose squares float32 does not hold.

    Args:
      tree: parameters, or what has their shapes.
      names: the names of each tensor's dimensions, `state.Model.names()`.
    """
    of_tensors = jax.tree.leaves(names, is_leaf=_is_names)
    rows = zip(jax.tree.leaves(tree), of_tensors, strict=True)
    return jnp.concatenate([_sums(leaf, _is_stacked(each)) for leaf, each in rows])


def unless(bad: Bool[Array, ""], new: Any, old: Any) -> Any:
    """The new tree of arrays, or the old one where `bad`."""
    return jax.tree.map(lambda n, o: jnp.where(bad, o, n), new, old)


def pieces(model: Model) -> list[Piece]:
    """What each entry of `sums_of_squares` is of, for parameters and for their gradients."""
    found: list[Piece] = []
    leaves = jax.tree_util.tree_leaves_with_path(model.names(), is_leaf=_is_names)
    for (keys, names), leaf in zip(leaves, jax.tree.leaves(model.shapes()), strict=True):
        path = tuple(jax.tree_util.keystr((key,), simple=True) for key in keys)
        numbers = range(leaf.shape[0]) if _is_stacked(names) else (None,)
        found += [Piece(path, number) for number in numbers]
    return found


def first(flags: Sequence[bool] | np.ndarray, of_pieces: Sequence[Piece]) -> Piece | None:
    """The first piece in the model's order that has its flag set; of layers, the first layer's."""
    found = [piece for piece, flag in zip(of_pieces, flags, strict=True) if flag]
    return min(found, key=_place, default=None)


def all_finite(metrics: Mapping[str, Any]) -> bool:
    """Whether a step's metrics show neither NaN nor Inf."""
    norms = (metrics["update_norm"], metrics["parameter_norm"])
    return not metrics["nonfinite"] and all(map(math.isfinite, norms))


def describe(metrics: Mapping[str, Any], of_pieces: Sequence[Piece]) -> str:
    """The first thing of a step that is not finite, and how many others are not.

    Parameters that were so before come first, then the loss's terms, the gradients in the model's
    order, and last the update that the optimizer made of finite gradients.
    """
    flags, gradients = metrics["nonfinite_parameters"], metrics["nonfinite_tensors"]
    parameter, gradient = first(flags, of_pieces), first(gradients, of_pieces)
    norm = f"gradient_norm is {float(metrics['gradient_norm'])}"
    if parameter and (metrics["nonfinite"] or math.isfinite(metrics["update_norm"])):
        return f"parameter {parameter} was not finite before the step{_of(flags)}"
    for name in LOSS_TERMS:
        if not math.isfinite(metrics.get(name, 0.0)):
            rest = f"; gradients that are not finite: {np.sum(gradients)} of {len(gradients)}"
            return f"{name} is {float(metrics[name])}{rest}"
    if gradient:
        loss = f"; total_loss is {float(metrics['total_loss'])}"
        return f"the gradient of {gradient} is not finite{_of(gradients)}{loss}"
    if metrics["nonfinite"]:  # each by itself is, and their sum is not
        return norm
    changed = parameter or "the parameters"
    return f"the optimizer's update of {changed} is not finite{_of(flags)}; {norm}"


def _sums(leaf: Array, stacked: bool) -> Float[Array, " pieces"]:
    squares = jnp.square(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)))
    return squares.sum(axis=range(1, leaf.ndim)) if stacked else squares.sum()[None]


def _is_names(node: Any) -> bool:
    return isinstance(node, tuple)


def _is_stacked(names: tuple[str | None, ...]) -> bool:
    return names[:1] == (STACKED,)


def _place(piece: Piece) -> tuple[Any, ...]:
    ranks = [(_ORDER.index(n) if n in _ORDER else len(_ORDER), n) for n in piece.path]
    return ranks[0], -1 if piece.number is None else piece.number, ranks[1:]


def _of(flags: np.ndarray) -> str:
    count = int(np.sum(flags))
    return f", the first of {count}" if count > 1 else ""
