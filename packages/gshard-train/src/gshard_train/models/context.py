"""What a layer needs to know of its rows beside their numbers.

Axes: B rows, L length, G groups, K pairs of layers, J the layers of a pair,
S what a layer draws for a row, X numbers.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from gshard_annotate import annotate

# The number of what a layer draws for each group, and how many there are of what it draws for each
# row: dropout of its feed-forward part (1), of its attentions (2, 3) and of their weights (4, 5).
_COIN, _ROW_SITES = 0, 5


class LayerKeys(NamedTuple):
    """What layers draw from.

    Made for all layers of a stack at once: key by key they were half of a step's program on TPU.
    """

    row_SB: Key[Array, "*layers S B"]
    group_G: Key[Array, "*layers G"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The rows that a layer is given, and where they stand in the global batch.

    What is drawn for a row or a group depends on the step, the layer and its number in the global
    batch, never on which rows are computed together: the same for any split into microbatches.

    Attributes:
      mask_BL: True where a token stands.
      row_B: the number of each row in the global batch.
      group_G: the number of each group in the global batch; as many groups as there are.
      key: for dropout and the second expert's coin; None when evaluating, and inside of layers.
      keys: of a pair of layers, or of one; None when evaluating, and outside.
      segment_BL: which example of its row a token belongs to, from 1; None for one example a row.
      label_B: the label (language) of each row, for statistics by label.
      num_labels: how many labels there are.
    """

    mask_BL: Bool[Array, "B L"]
    row_B: Int[Array, " B"]
    group_G: Int[Array, " G"]
    key: Key[Array, ""] | None = None
    keys: LayerKeys | None = None
    segment_BL: Int[Array, "B L"] | None = None
    label_B: Int[Array, " B"] | None = None
    num_labels: int = dataclasses.field(default=0, metadata={"static": True})

    def fold(self, number: int | Int[Array, ""]) -> "Context":
        """The context of sub-part `number`, with a key of its own."""
        key = None if self.key is None else jax.random.fold_in(self.key, number)
        return dataclasses.replace(self, key=key)

    def layer_keys(self, number_K: Int[Array, " K"]) -> LayerKeys | None:
        """The keys of the pairs of these numbers, [K, J, ...]; None when evaluating."""
        if self.key is None:
            return None
        key_KJ = _fold_each(_fold_each(self.key, number_K), jnp.arange(2))
        key_KJS = _fold_each(key_KJ, jnp.arange(1 + _ROW_SITES))
        row_KJSB = _fold_each(key_KJS[..., 1:], self.row_B)
        group_KJG = _fold_each(key_KJS[..., _COIN], self.group_G)
        return LayerKeys(
            annotate(row_KJSB, None, None, None, "batch"), annotate(group_KJG, None, None, "group")
        )

    def of_layer(self, number: int) -> "Context":
        """The context of one layer of the pair that this is the context of."""
        if self.keys is None:
            return self.fold(number)
        return dataclasses.replace(self, keys=LayerKeys(*(keys[number] for keys in self.keys)))

    @property
    def evaluating(self) -> bool:
        """Whether nothing is drawn."""
        return self.key is None and self.keys is None

    def row_keys(self, number: int) -> Key[Array, " B"] | None:
        """A key for each row, for what sub-part `number` draws; None when evaluating."""
        if self.keys is not None:
            return self.keys.row_SB[number - 1]
        key = self.fold(number).key
        return None if key is None else _fold_each(key, self.row_B)

    def group_keys(self) -> Key[Array, " G"] | None:
        """A key for each group, for the coin of a layer; None when evaluating."""
        if self.keys is not None:
            return self.keys.group_G
        key = self.fold(_COIN).key
        return None if key is None else _fold_each(key, self.group_G)

    def label_GS(self) -> Int[Array, "G S"] | None:
        """The label of each token of each group."""
        if self.label_B is None:
            return None
        label_BL = jnp.broadcast_to(self.label_B[:, None], self.mask_BL.shape)
        return label_BL.reshape(self.group_G.shape[0], -1)


def numbers(
    rows: int, groups: int, microbatch: tuple[int | Int[Array, ""], int]
) -> tuple[Int[Array, " B"], Int[Array, " G"]]:
    """The numbers in the global batch of the rows and groups of a microbatch.

    Args:
      rows: rows of the microbatch.
      groups: groups of the global batch.
      microbatch: (m, M) for the m-th of M, each a block of rows.

    Raises:
      ValueError: the groups cannot be divided among the microbatches.
    """
    number, count = microbatch
    if groups % count:
        raise ValueError(
            f"EncoderDecoder: num_groups={groups} cannot be divided among {count} microbatches; "
            f"use a number of microbatches that divides {groups}"
        )
    groups //= count
    return number * rows + jnp.arange(rows), number * groups + jnp.arange(groups)


def _fold_each(key: Key[Array, "*dims"], number_X: Int[Array, " X"]) -> Key[Array, "*dims X"]:
    """Each key folded with each number."""
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    for _ in range(key.ndim):
        fold = jax.vmap(fold, (0, None))
    return fold(key, number_X)
