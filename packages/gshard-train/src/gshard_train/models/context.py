"""What a layer needs to know of its rows beside their numbers.

Axes: B rows, L length, G groups.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key


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
      key: for dropout and the second expert's coin; None when evaluating.
      segment_BL: which example of its row a token belongs to, from 1; None for one example a row.
      label_B: the label (language) of each row, for statistics by label.
      num_labels: how many labels there are.
    """

    mask_BL: Bool[Array, "B L"]
    row_B: Int[Array, " B"]
    group_G: Int[Array, " G"]
    key: Key[Array, ""] | None = None
    segment_BL: Int[Array, "B L"] | None = None
    label_B: Int[Array, " B"] | None = None
    num_labels: int = dataclasses.field(default=0, metadata={"static": True})

    def fold(self, number: int | Int[Array, ""]) -> "Context":
        """The context of sub-part `number`, with a key of its own."""
        key = None if self.key is None else jax.random.fold_in(self.key, number)
        return dataclasses.replace(self, key=key)

    def row_keys(self, number: int) -> Key[Array, " B"] | None:
        """A key for each row, for what sub-part `number` draws; None when evaluating."""
        return _fold_each(self.fold(number).key, self.row_B)

    def group_keys(self, number: int) -> Key[Array, " G"] | None:
        """A key for each group, for what sub-part `number` draws; None when evaluating."""
        return _fold_each(self.fold(number).key, self.group_G)

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


def _fold_each(key: Key[Array, ""] | None, number_X: Int[Array, " X"]) -> Key[Array, " X"] | None:
    return None if key is None else jax.vmap(jax.random.fold_in, (None, 0))(key, number_X)
