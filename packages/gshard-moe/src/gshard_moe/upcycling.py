"""A dense feed-forward block to the experts of a MoE layer (Komatsuzaki et al., arXiv 2212.05055).

With equal experts a token's output is the dense block's times the sum of its weights:

| router | sum of weights | like the dense block |
|---|---|---|
| `Top2`, second "always"; `TopK`, "choose_then_softmax" | 1 | exactly, while nothing drops |
| `Top2`, second "random" | 1, or g1 for the coin's losers | at evaluation |
| `Top2`, second "never" | g1, about 1/2 | about, with output_scale=2 |
| `TopK(k)`, "softmax_then_choose" | about k / E | about, with output_scale=E / k |
| any, for a token that was dropped | less, down to 0 | no |

"About" is the nearer the smaller `router_std` is: with all probabilities alike it is exact.

Axes: E experts, M model width, H hidden width.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gshard_moe.layer_faults import raise_all
from gshard_moe.parameters import AXES, DENSE_AXES, arrays_of, in_tree_of, parameter_faults


def upcycle(
    dense: Mapping[str, Any],
    num_experts: int,
    *,
    key: jax.Array,
    router_std: float = 0.02,
    noise: float = 0.0,
    output_scale: float = 1.0,
) -> dict[str, Array]:
    """Parameters of a MoELayer whose experts are all the dense block.

    Experts begin alike and part by the tokens that the router gives them.

    Args:
      dense: wi [M,H] and wo [H,M]; gate, bi, bo and bg where it has them. Stacked layers have a
        leading axis.
      num_experts: E.
      key: For the router, and noise.
      router_std: Of the router's normal distribution; 0.02 in the paper.
      noise: Standard deviation of what is added to each expert's matrices, as a share of the
        matrix's own; 0 for exact copies, as in the paper.
      output_scale: What wo and bo are multiplied with, for weights that do not sum to 1 (table
        above).

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    arrays = arrays_of(dense)
    faults = parameter_faults(arrays, DENSE_AXES)
    # Before JAX sees it: 3.0 is 3 to its caches, and would fail for both.
    if not isinstance(num_experts, (int, np.integer)):
        faults.append(f"num_experts is {num_experts!r}; give a whole number")
    elif num_experts < 1:
        faults.append(f"num_experts is {num_experts}; give at least 1")
    given = {"router_std": router_std, "noise": noise}
    faults += [f"{name} is {value}; give 0 or more" for name, value in given.items() if value < 0]
    if not output_scale > 0:
        faults.append(f"output_scale is {output_scale}; give more than 0")
    raise_all("upcycle", faults)

    moe = {name: _copies(array, DENSE_AXES[name], num_experts) for name, array in arrays.items()}
    for name in {"wo", "bo"} & moe.keys():
        moe[name] = moe[name] * output_scale
    moe = add_noise(moe, jax.random.fold_in(key, 0), noise=noise) if noise else moe
    *layers, M, _ = arrays["wi"].shape
    router = jax.random.normal(jax.random.fold_in(key, 1), (*layers, M, num_experts))
    return moe | {"router": (router_std * router).astype(moe["wi"].dtype)}


def add_noise(
    parameters: Mapping[str, Any], key: jax.Array, *, noise: float = 0.0, router_noise: float = 0.0
) -> Any:
    """The arrays with normal noise on the experts' matrices and on the router.

    Copies of an expert that see the same tokens stay copies; noise lets them part.

    Args:
      parameters: A MoELayer's or only some of them, in a pure dict or an `nnx.State`, which comes
        back as one; biases stay as they are.
      key: For all of them.
      noise: Standard deviation as a share of that of the matrix, each expert's and layer's own.
      router_noise: The same for the router.

    Raises:
      ValueError: Names that a MoELayer does not have, and negative noise, at once.
    """
    unknown, given = set(parameters) - set(AXES), {"noise": noise, "router_noise": router_noise}
    faults = []
    if unknown:
        faults.append(f"surplus {', '.join(sorted(unknown))}; a layer has {', '.join(AXES)}")
    faults += [f"{name} is {n}; give 0 or more" for name, n in given.items() if not n >= 0]
    raise_all("add_noise", faults)
    arrays = {name: jnp.asarray(array) for name, array in arrays_of(parameters).items()}
    shares = dict.fromkeys(("wi", "wo", "gate"), noise) | {"router": router_noise}
    for index, (name, share) in enumerate(shares.items()):
        if share and name in arrays:
            drawn = jax.random.normal(jax.random.fold_in(key, index), arrays[name].shape)
            added = share * arrays[name].std((-2, -1), keepdims=True) * drawn
            arrays[name] = arrays[name] + added.astype(arrays[name].dtype)
    return in_tree_of(parameters, arrays)


def _copies(array: Any, axes: str, num_experts: int) -> Array:
    """Copies on a new axis in front of the array's own axes."""
    stacked = jnp.expand_dims(jnp.asarray(array), -len(axes) - 1)
    return jnp.repeat(stacked, num_experts, -len(axes) - 1)
