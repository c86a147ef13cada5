"""The mixture-of-experts layer of GShard (arXiv 2006.16668) as a Flax NNX module.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gshard_annotate import annotate
from gshard_moe.choosing import softmax
from gshard_moe.exchange import Dispatch as Dispatch
from gshard_moe.exchange import ExpertLoop, through_rows, through_slots
from gshard_moe.experts import Activation, Experts
from gshard_moe.explicit import on_auto_axes
from gshard_moe.finite import count_not_finite, stop_if_not_finite
from gshard_moe.gating import SecondExpert
from gshard_moe.layer_faults import (
    argument_faults,
    input_faults,
    raise_all,
    routing_faults,
    warn_of_few_slots,
)
from gshard_moe.logits import router_logits, without_padding
from gshard_moe.losses import balance_loss, mean_square
from gshard_moe.output import MoEOutput as MoEOutput
from gshard_moe.plan import plan_of
from gshard_moe.routers import Router, Top2
from gshard_moe.routing import Routing
from gshard_moe.statistics import statistics, statistics_by_label

# Fan-in of one expert, not of all together.
_KERNEL_INIT = nnx.initializers.lecun_normal(batch_axis=(0,))
_ROUTER_INIT = nnx.initializers.lecun_normal()
_BIAS_INIT = nnx.initializers.zeros

# Logical names of the parameters, by shape.
_AXES = {"EMH": ("expert", "embed", "mlp"), "EHM": ("expert", "mlp", "embed")}
_AXES |= {"EH": ("expert", "mlp"), "EM": ("expert", "embed"), "ME": ("embed", "router")}


class MoELayer(nnx.Module):
    """Feed-forward experts behind a router, in place of a feed-forward block.

    Tokens come in groups (`gshard_moe.grouping.group`). The layer annotates its activations with
    logical names; on one device that does nothing, on several enter `gshard_annotate.rules_scope`
    or `jax.set_mesh` and split groups over (data, expert), experts over expert, so that the
    compiler exchanges tokens by two all-to-alls forward and two backward.

    `eval()` and `train()` of any Flax module around set the attribute `deterministic`.

    Args:
      num_experts: E.
      embed: Model width M.
      mlp: Hidden width H of an expert.
      slots_per_token: Slots of all experts together per token in training; None for S slots each,
        which drops nothing; "choices" for as many as the router makes choices (top-2: the paper's
        2S/E). With dispatch="sorted" the rows of the buffer per token, and no expert has a limit.
      eval_slots_per_token: The same when deterministic. None drops nothing: by S slots of each
        expert, or by sorted rows, as `eval_padded_slots` says. A router
        that fills every slot (`ExpertChoice`) then has those of training.
      eval_padded_slots: Most slots of a group, E * S, that an evaluation without limit pads up to;
        with more it sorts. None: with dispatch="auto" it sorts where that is faster, since slots
        are more than twice the rows, and with "einsum" and "gather" from 2**15 slots on.
      router: How tokens find experts; None for `Top2` with the three arguments below.
      second_expert: "random" (probability 2 g2, as in the paper), "always" or "never".
      eval_second_expert: The same when deterministic.
      burn_slots: Whether second choices that lose their coin take up slots all the same.
      causal: Whether the layer is in a decoder; to be said for routers that look at later tokens,
        which a decoder must not.
      jitter: Router inputs are multiplied with noise from 1 - jitter to 1 + jitter in training.
      dispatch: "einsum", by which a NaN or infinite token reaches its whole group, "gather",
        "sorted" (no limit per expert), or "auto": the fastest known.
      experts: "batched" (one einsum), "one_by_one" (one device), or "auto": one by one on CPU
        before JAX 0.11.
      expert_parts: Parts of the experts that have their own rows, with dispatch="sorted" and a
        limit; a multiple of the devices that experts are split over.
      gated: Whether the activation is that of a gate (GeGLU, SwiGLU).
      activation: Between the two matrices: `jax.nn.relu`, `jax.nn.gelu`, `jax.nn.silu`.
      use_bias: Whether the matrices have biases.
      check_finite: Whether logits that are NaN or infinite stop the program with an error that
        names the layer. For looking for them on one device: each step then waits for the host. On
        several, where the others would wait for the one that stopped, give the output of a step to
        `raise_if_not_finite`.
      min_slots: Fewest slots of an expert and group.
      slots_multiple_of: What slots of an expert and group are rounded up to.
      name: What messages call the layer.
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
        slots_per_token: float | Literal["choices"] | None = "choices",
        eval_slots_per_token: float | Literal["choices"] | None = None,
        eval_padded_slots: int | None = None,
        router: Router | None = None,
        second_expert: SecondExpert = "random",
        eval_second_expert: SecondExpert = "always",
        burn_slots: bool = False,
        causal: bool | None = None,
        jitter: float = 0.0,
        dispatch: Dispatch = "auto",
        experts: ExpertLoop = "auto",
        expert_parts: int | None = None,
        gated: bool = False,
        activation: Activation = jax.nn.relu,
        use_bias: bool = False,
        check_finite: bool = False,
        min_slots: int = 1,
        slots_multiple_of: int = 1,
        name: str = "MoELayer",
        dtype: jnp.dtype = jnp.float32,
        param_dtype: jnp.dtype = jnp.float32,
        kernel_init: nnx.Initializer = _KERNEL_INIT,
        router_init: nnx.Initializer = _ROUTER_INIT,
        capacity_factor: float | None = None,
        rngs: nnx.Rngs,
    ):
        self.num_experts, self.embed, self.mlp = num_experts, embed, mlp
        self.second_expert: SecondExpert = second_expert
        self.eval_second_expert: SecondExpert = eval_second_expert
        self.burn_slots = burn_slots
        top2 = Top2(second_expert, eval_second_expert, burn_slots)
        self.routing = top2 if router is None else router
        self.min_slots, self.slots_multiple_of = min_slots, slots_multiple_of
        self.eval_padded_slots, self.expert_parts = eval_padded_slots, expert_parts
        self.dispatch: Dispatch = dispatch
        self.experts: ExpertLoop = experts
        self.causal = causal
        self.gated, self.activation, self.use_bias = gated, activation, use_bias
        self.jitter, self.check_finite, self.name, self.dtype = jitter, check_finite, name, dtype
        self.deterministic = False
        slots = (slots_per_token, eval_slots_per_token)
        raise_all(
            name, argument_faults(self, router, slots, capacity_factor, (dtype, param_dtype), rngs)
        )
        # Rows have no limit but the buffer's, which need not be one.
        choices = None if dispatch == "sorted" else float(self.routing.choices)
        self.slots_per_token, self.eval_slots_per_token = (
            choices if each == "choices" else each for each in slots
        )
        warn_of_few_slots(self)
        self._create(param_dtype, kernel_init, router_init, rngs)

    def _create(
        self,
        dtype: jnp.dtype,
        kernel_init: nnx.Initializer,
        router_init: nnx.Initializer,
        rngs: nnx.Rngs,
    ) -> None:
        sizes = {"E": self.num_experts, "M": self.embed, "H": self.mlp}

        def param(init: nnx.Initializer, axes: str) -> nnx.Param:
            value = init(rngs.params(), tuple(sizes[axis] for axis in axes), dtype)
            # Named so, the axes survive Flax's bridge to Linen; other metadata becomes an empty
            # spec there. As metadata only, since a mesh is not known here.
            return nnx.Param(value, out_sharding=_AXES[axes], eager_sharding=False)

        self.router = param(router_init, "ME")
        self.wi, self.wo = param(kernel_init, "EMH"), param(kernel_init, "EHM")
        if self.gated:
            self.gate = param(kernel_init, "EMH")
        if self.use_bias:
            self.bi, self.bo = param(_BIAS_INIT, "EH"), param(_BIAS_INIT, "EM")
        if self.use_bias and self.gated:
            self.bg = param(_BIAS_INIT, "EH")

    def __call__(
        self,
        x_GSM: Float[Array, "G S M"],
        mask_GS: Bool[Array, "G S"] | None = None,
        *,
        key: jax.Array | None = None,
        deterministic: bool | None = None,
        layer_index: Int[Array, ""] | int = 0,
        labels_GS: Int[Array, "G S"] | None = None,
        num_labels: int = 0,
    ) -> tuple[Float[Array, "G S M"], MoEOutput]:
        """The experts' weighted outputs, without residual, and what the router did.

        Args:
          x_GSM: Tokens in groups.
          mask_GS: False for padding: routed nowhere, output 0, in no loss or statistic.
          key: For the second expert's coin and for jitter; a function of it and of the token's
            place only. Or one for each group, [G]: what is drawn then depends on that and on the
            place in the group, whichever groups are computed together.
          deterministic: Evaluation: the `eval_` settings, no jitter. None for what `eval()` and
            `train()` said last; False before that.
          layer_index: Which of several stacked layers this is, for messages.
          labels_GS: A label of each token (a language, a task), 0 to `num_labels` - 1, for
            `by_label` of the output; others count nowhere.
          num_labels: How many labels there are.
        """
        deterministic = self.deterministic if deterministic is None else deterministic
        jitter = 0.0 if deterministic else self.jitter
        raise_all(self.name, input_faults(self, x_GSM, mask_GS, key, deterministic))
        x_GSM = annotate(x_GSM, "group", "group_token", "act_embed")
        wi, wo, *others = (self._values(name) for name in ("wi", "wo", "gate", "bi", "bo", "bg"))
        assert wi is not None
        assert wo is not None
        forward = functools.partial(
            self._forward, deterministic=deterministic, jitter=jitter, num_labels=num_labels
        )
        experts = Experts(wi, wo, *others)
        return on_auto_axes(
            forward, self.router[...], experts, x_GSM, mask_GS, key, layer_index, labels_GS
        )

    def _values(self, name: str) -> Array | None:
        return getattr(self, name)[...] if hasattr(self, name) else None

    def _forward(
        self,
        router_ME: Array,
        experts: Experts,
        x_GSM: Array,
        mask_GS: Array | None,
        key: jax.Array | None,
        layer_index: Array | int,
        labels_GS: Array | None,
        *,
        deterministic: bool,
        jitter: float,
        num_labels: int,
    ) -> tuple[Array, MoEOutput]:
        """What the layer does, as a function of arrays."""
        logits_GSE = router_logits(x_GSM, router_ME, mask_GS, jitter=jitter, key=key)
        non_finite = count_not_finite(logits_GSE)
        if self.check_finite:
            stop_if_not_finite(self.name, non_finite, logits_GSE.size, layer_index)
        plan = plan_of(self, x_GSM.shape[0], x_GSM.shape[1], deterministic=deterministic)
        with jax.named_scope("gating"):
            routing = self.routing.route(
                logits_GSE,
                capacity=plan.capacity,
                mask_GS=mask_GS,
                key=key,
                deterministic=deterministic,
            )
        raise_all(self.name, routing_faults(self.routing, routing, plan.kind))
        experts = jax.tree.map(lambda w: w.astype(self.dtype), experts)
        x_GSM = x_GSM.astype(self.dtype)
        if plan.kind == "einsum":  # which would multiply a NaN in padding with 0
            x_GSM = without_padding(x_GSM, mask_GS)
        if plan.kind == "sorted":
            assert isinstance(routing, Routing)
            y_GSM, routing = through_rows(
                x_GSM,
                routing,
                experts,
                self.activation,
                slots_per_token=plan.rows_per_token,
                expert_parts=self.expert_parts,
            )
        else:
            y_GSM = through_slots(
                x_GSM, routing, experts, self.activation, kind=plan.kind, loop=self.experts
            )
        y_GSM = annotate(y_GSM, "group", "group_token", "act_embed")
        with jax.named_scope("gating"):
            p_GSE, logsumexp_GS = softmax(logits_GSE)
        # An `ExpertRouting` is balanced by construction: nothing to push against.
        balance = jnp.ones(())
        if isinstance(routing, Routing):
            balance = balance_loss(p_GSE, routing.expert_GSK[..., 0], mask_GS)
        return y_GSM, MoEOutput(
            balance_loss=balance,
            z_loss=mean_square(logsumexp_GS, mask_GS),
            statistics=statistics(routing, p_GSE, mask_GS),
            batch_independent=plan.unlimited
            and plan.kind != "einsum"
            and not jitter
            and self.routing.alone(deterministic=deterministic),
            non_finite=non_finite,
            by_label=None
            if labels_GS is None
            else statistics_by_label(routing, labels_GS, num_labels, mask_GS),
        )
