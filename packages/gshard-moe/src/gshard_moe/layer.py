"""The mixture-of-experts layer of GShard (arXiv 2006.16668) as a Flax NNX module.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float

from gshard_annotate import annotate
from gshard_moe import dispatch as dispatching
from gshard_moe.capacity import PAPER_SLOTS_PER_TOKEN, capacity
from gshard_moe.gating import SecondExpert, probabilities, top2
from gshard_moe.losses import balance_loss, router_z_loss
from gshard_moe.routing import Routing
from gshard_moe.statistics import Statistics, statistics

Dispatch = Literal["einsum", "gather"]

# Fan-in of one expert, not of all together.
_KERNEL_INIT = nnx.initializers.lecun_normal(batch_axis=(0,))
_ROUTER_INIT = nnx.initializers.lecun_normal()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MoEOutput:
    """What a layer returns beside its output, unweighted.

    Attributes:
      balance_loss: 1 for a balanced router; the authors' code weighs it with 0.01.
      z_loss: Mean squared logsumexp of the router logits; ST-MoE weighs it with 0.001.
      statistics: Sums that add up over layers and steps.
    """

    balance_loss: Float[Array, ""]
    z_loss: Float[Array, ""]
    statistics: Statistics


class MoELayer(nnx.Module):
    """Two-matrix feed-forward experts behind a top-2 router, in place of a feed-forward block.

    Tokens come in groups (`gshard_moe.grouping.group`). The layer annotates its activations with
    logical names; on one device that does nothing, on several enter `gshard_annotate.rules_scope`
    or `jax.set_mesh` and split groups over (data, expert), experts over expert, so that the
    compiler exchanges tokens by two all-to-alls forward and two backward.

    Args:
      num_experts: E.
      embed: Model width M.
      mlp: Hidden width H of an expert.
      slots_per_token: Slots of all experts together per token in training; the paper's 2S/E is 2.
      eval_slots_per_token: The same when deterministic; None for S slots, which drops nothing.
      second_expert: "random" (probability 2 g2, as in the paper), "always" or "never".
      eval_second_expert: The same when deterministic.
      burn_slots: Whether second choices that lose their coin take up slots all the same.
      dispatch: "einsum" or "gather"; same numbers, different speed.
      activation: Between the two matrices.
      dtype: Of the experts' computation and of the output. The router computes in float32.
      param_dtype: Of the parameters.
      kernel_init: Initialiser of wi [E,M,H] and wo [E,H,M].
      router_init: Initialiser of router [M,E].
      rngs: Source of the parameters' key.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """

    def __init__(
        self,
        num_experts: int,
        embed: int,
        mlp: int,
        *,
        slots_per_token: float = PAPER_SLOTS_PER_TOKEN,
        eval_slots_per_token: float | None = None,
        second_expert: SecondExpert = "random",
        eval_second_expert: SecondExpert = "always",
        burn_slots: bool = False,
        dispatch: Dispatch = "einsum",
        activation: Callable[[Array], Array] = jax.nn.relu,
        dtype: jnp.dtype = jnp.float32,
        param_dtype: jnp.dtype = jnp.float32,
        kernel_init: nnx.Initializer = _KERNEL_INIT,
        router_init: nnx.Initializer = _ROUTER_INIT,
        rngs: nnx.Rngs,
    ):
        self.num_experts, self.embed, self.mlp = num_experts, embed, mlp
        self.slots_per_token, self.eval_slots_per_token = slots_per_token, eval_slots_per_token
        self.second_expert: SecondExpert = second_expert
        self.eval_second_expert: SecondExpert = eval_second_expert
        self.burn_slots, self.dispatch, self.activation = burn_slots, dispatch, activation
        self.dtype = dtype
        self._check_arguments()
        E, M, H = num_experts, embed, mlp
        self.router = _param(router_init(rngs.params(), (M, E), param_dtype), "embed", "router")
        self.wi = _param(
            kernel_init(rngs.params(), (E, M, H), param_dtype), "expert", "embed", "mlp"
        )
        self.wo = _param(
            kernel_init(rngs.params(), (E, H, M), param_dtype), "expert", "mlp", "embed"
        )

    def __call__(
        self,
        x_GSM: Float[Array, "G S M"],
        mask_GS: Bool[Array, "G S"] | None = None,
        *,
        key: jax.Array | None = None,
        deterministic: bool = False,
    ) -> tuple[Float[Array, "G S M"], MoEOutput]:
        """The experts' weighted outputs, without residual, and what the router did.

        Args:
          x_GSM: Tokens in groups.
          mask_GS: False for padding: routed nowhere, output 0, in no loss or statistic.
          key: For the second expert's coin; a function of it and of the token's place only.
          deterministic: Evaluation: the `eval_` settings.
        """
        self._check_inputs(x_GSM, mask_GS)
        if mask_GS is not None:  # so that not even a NaN in padding reaches an expert or a loss
            x_GSM = jnp.where(mask_GS[..., None], x_GSM, 0)
        x_GSM = annotate(x_GSM, "group", "group_token", "act_embed")
        # In full float32 on every backend: TPU and GPU would round the factors of the products, and
        # near ties would go to other experts.
        logits_GSE = jnp.einsum(
            "GSM,ME->GSE",
            x_GSM.astype(jnp.float32),
            self.router[...].astype(jnp.float32),
            precision=jax.lax.Precision.HIGHEST,
        )
        routing = self._route(logits_GSE, mask_GS, key, deterministic)
        y_GSM = self._experts(x_GSM.astype(self.dtype), routing)
        p_GSE = probabilities(logits_GSE)
        return y_GSM, MoEOutput(
            balance_loss=balance_loss(p_GSE, routing.expert_GSK[..., 0], mask_GS),
            z_loss=router_z_loss(logits_GSE, mask_GS),
            statistics=statistics(routing, p_GSE, mask_GS),
        )

    def _route(
        self, logits_GSE: Array, mask_GS: Array | None, key: jax.Array | None, deterministic: bool
    ) -> Routing:
        slots = self.eval_slots_per_token if deterministic else self.slots_per_token
        return top2(
            logits_GSE,
            capacity=capacity(logits_GSE.shape[1], self.num_experts, slots_per_token=slots),
            mask_GS=mask_GS,
            key=key,
            second=self.eval_second_expert if deterministic else self.second_expert,
            burn_slots=self.burn_slots,
        )

    def _experts(self, x_GSM: Array, routing: Routing) -> Array:
        """Algorithm 2, lines 4-8; each change from groups to experts is an all-to-all."""
        send, fetch = _DISPATCH[self.dispatch]
        # Copied into slots where the tokens are, then sent to where the experts are.
        x_EGCM = annotate(send(x_GSM, routing), None, "group", "capacity", "act_embed")
        x_EGCM = annotate(x_EGCM, "expert", "dispatched_group", "capacity", "act_embed")
        x_EGCM = checkpoint_name(x_EGCM, "moe_dispatch")
        h_EGCH = jnp.einsum("EGCM,EMH->EGCH", x_EGCM, self.wi[...].astype(self.dtype))
        h_EGCH = annotate(h_EGCH, "expert", "dispatched_group", "capacity", "act_mlp")
        h_EGCH = self.activation(h_EGCH)
        y_EGCM = jnp.einsum("EGCH,EHM->EGCM", h_EGCH, self.wo[...].astype(self.dtype))
        y_EGCM = annotate(y_EGCM, "expert", "dispatched_group", "capacity", "act_embed")
        y_EGCM = annotate(y_EGCM, None, "group", "capacity", "act_embed")
        y_EGCM = checkpoint_name(y_EGCM, "moe_combine")
        return annotate(fetch(y_EGCM, routing), "group", "group_token", "act_embed")

    def _check_arguments(self) -> None:
        sizes = {name: getattr(self, name) for name in ("num_experts", "embed", "mlp")}
        faults = [f"{name} is {n}; give at least 1" for name, n in sizes.items() if n < 1]
        for name in ("slots_per_token", "eval_slots_per_token"):
            slots = getattr(self, name)
            if slots is not None and not slots > 0:
                faults.append(f"{name} is {slots}; give more than 0 (the paper's 2S/E is 2.0)")
        choices = dict.fromkeys(("second_expert", "eval_second_expert"), get_args(SecondExpert))
        for name, allowed in (choices | {"dispatch": tuple(_DISPATCH)}).items():
            if getattr(self, name) not in allowed:
                given = getattr(self, name)
                faults.append(f"{name} is {given!r}; give one of {', '.join(map(repr, allowed))}")
        if faults:
            raise ValueError(f"MoELayer: {'; '.join(faults)}")

    def _check_inputs(self, x_GSM: Array, mask_GS: Array | None) -> None:
        faults = []
        if x_GSM.ndim != 3 or x_GSM.shape[-1] != self.embed:
            faults.append(f"x has shape {x_GSM.shape}; give [groups, tokens, {self.embed}]")
        if mask_GS is not None and mask_GS.shape != x_GSM.shape[:2]:
            faults.append(f"mask has shape {mask_GS.shape}; give {x_GSM.shape[:2]}")
        if mask_GS is not None and mask_GS.dtype != jnp.bool_:
            faults.append(f"mask is {mask_GS.dtype}; give bool, False for padding")
        if faults:
            raise ValueError(f"MoELayer: {'; '.join(faults)}")


_DISPATCH = {
    "einsum": (dispatching.dispatch_einsum, dispatching.combine_einsum),
    "gather": (dispatching.dispatch_gather, dispatching.combine_gather),
}


def _param(value: Array, *names: str) -> nnx.Param:
    """A parameter with logical names: as metadata only, since a mesh is not known here.

    Named so, they survive Flax's bridge to Linen; other metadata becomes an empty spec there.
    """
    return nnx.Param(value, out_sharding=names, eager_sharding=False)
