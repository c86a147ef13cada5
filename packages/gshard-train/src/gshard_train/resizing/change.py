"""What each way does to one array of a layer: a parameter, or what an optimizer keeps of it.

What an optimizer keeps is a mean of gradients, or of their squares. It becomes what it would have
been, had the new model had the past batches: a copy that is weighed with 1/n has 1/n of the
gradient. That is known where outputs stay the same, which takes n times the choices per token
(`gshard_moe.resizing` has the conditions); else it is the best guess.

| way, n | wi, gate, bi, bg | wo | bo | router |
|---|---|---|---|---|
| split | 1 | 1/n | 1/n | 1/n, what all parts have in the mean |
| merge | 1 | n | n | n, of the mean |
| copy | 1/n | 1/n | 1/n | 1/n |
| average | n, of the mean | the same | the same | the same |
| upcycle | 1/n in the mean | the same | the same | 0: a new one has no past |

Squares have the squares of these factors; but 1/n when upcycling, where each expert has other
tokens, whose squares add up.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gshard_moe.resizing import average_experts, copy_experts, merge_parts, split_experts
from gshard_moe.upcycling import add_noise, upcycle
from gshard_train.resizing.experts import Experts, factor

Kind = Literal["parameter", "gradient", "square"]
_PER_HIDDEN_UNIT = ("wi", "gate", "bi", "bg")  # a part has its own share of their gradient


@dataclasses.dataclass(frozen=True)
class Change:
    """One way from some experts to others.

    Attributes:
      how: one of `experts.HOWS`.
      before: what there is.
      after: what becomes of it; `how` leads there.
      seed: of what is drawn.
      noise: standard deviation of what is added to new experts' matrices, as a share of the
        matrix's own.
      router_std: of a new router.
    """

    how: str
    before: Experts
    after: Experts
    seed: int = 0
    noise: float = 0.0
    router_std: float = 0.02

    @property
    def times(self) -> int:
        """How many experts become one, or one becomes."""
        return factor(self.how, self.before, self.after)

    def changed(
        self, name: str, layer: Mapping[str, Any], array: Array | None, kind: Kind, number: int = 0
    ) -> Array:
        """An array of a layer's parameter, as the new model has it.

        Args:
          name: of the parameter.
          layer: shapes of all parameters that the layer has.
          array: the parameter, or what is kept of it in the same shape; None for a new router.
          kind: which of them.
          number: the layer's, by which new routers differ.
        """
        # The functions look at whole layers; what is not asked for leaves the program again.
        tree: dict[str, Array] = {n: jnp.zeros(each.shape, each.dtype) for n, each in layer.items()}
        if array is not None:
            tree[name] = array
        made = self._layer(tree, number)[name]
        if kind == "parameter":
            return made
        scale = self._scale(name)
        if kind == "square":
            scale = scale if self.how == "upcycle" else scale**2
        return made * (scale / self._of_parameter(name))

    def noisy(self, name: str, array: Array, number: int) -> Array:
        """A new parameter with its noise; `number` is the layer's."""
        if not self.noise:
            return array
        return add_noise({name: array}, self._key(1, number), noise=self.noise)[name]

    def words(self, name: str, kind: Kind) -> str:
        """What becomes of such an array, in a few words."""
        if self.how == "upcycle" and name == "router":
            return f"new, standard deviation {self.router_std:g}" if kind == "parameter" else "new"
        scale = self._of_parameter(name) if kind == "parameter" else self._scale(name)
        said = self._rearranged(name)
        if kind == "square" and self.how != "upcycle":
            scale = scale**2
        if scale > 1:
            said += f", times {scale:g}"
        elif scale < 1:
            said += f", divided by {1 / scale:g}"
        if self.noise and kind == "parameter" and name in ("wi", "wo", "gate"):
            said += f", noise {self.noise:g}"
        return said

    def is_exact(self, name: str, kind: Kind) -> bool:
        """Whether this is what the new model would have, where outputs stay the same."""
        if kind == "parameter":
            return True
        if self.how == "upcycle":
            return False
        if name == "router":
            return self.how in ("copy", "average") or (self.how, kind) == ("merge", "gradient")
        return True

    def _layer(self, tree: dict[str, Array], number: int) -> Mapping[str, Array]:
        if self.how == "split":
            return split_experts(tree, self.times)
        if self.how == "merge":
            return merge_parts(tree, self.times)
        if self.how == "copy":
            return copy_experts(tree, self.times)
        if self.how == "average":
            return average_experts(tree, self.times)
        return upcycle(tree, self.times, key=self._key(0, number), router_std=self.router_std)

    def _key(self, use: int, number: int) -> Array:
        """For one of two uses in one layer."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), use), number)

    def _of_parameter(self, name: str) -> float:
        if name != "wo":
            return 1.0
        return {"split": float(self.times), "merge": 1 / self.times}.get(self.how, 1.0)

    def _scale(self, name: str) -> float:
        """Of a gradient: the table above."""
        if self.how in ("split", "merge") and name in _PER_HIDDEN_UNIT:
            return 1.0
        return float(self.times) if self.how in ("merge", "average") else 1 / self.times

    def _rearranged(self, name: str) -> str:
        n = self.times
        if self.how == "average" or (self.how == "merge" and name in ("router", "bo")):
            return f"mean of {n}"
        if self.how == "merge":
            return f"{n} joined"
        return (
            f"split in {n}"
            if self.how == "split" and name not in ("router", "bo")
            else f"{n} copies"
        )
