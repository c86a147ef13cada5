"""What a GShard Transformer is made of: sizes, experts, regularisation, precision."""

import dataclasses
from collections.abc import Iterator
from typing import get_args

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from gshard_moe.gating import SecondExpert
from gshard_moe.layer import Dispatch
from gshard_train.models.remat import Remat, remat_fault
from gshard_train.ranges import is_share, is_whole

# As text or as JAX's types: gin files have only the text.
DTYPES = ("float32", "bfloat16", "float64", jnp.float32, jnp.bfloat16, jnp.float64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """An encoder-decoder Transformer with experts in place of every other feed-forward layer.

    The defaults are the paper's sizes (arXiv 2006.16668, A.2) at 36 layers and 2048 experts.

    Attributes:
      source_vocab_size: pieces of the source vocabulary.
      target_vocab_size: pieces of the target vocabulary; embedding and output are separate.
      max_length: longest sequence, which is the size of the tables of learned positions.
      embed: model width M.
      mlp: hidden width H of the dense feed-forward layers and of each expert.
      expert_mlp: that of each expert, where it is another.
      num_heads: attention heads N.
      head_dim: width D of a head; N x D need not equal M.
      num_encoder_layers: even; layers 0, 2, 4 ... hold experts, the others are dense.
      num_decoder_layers: as above.
      num_experts: experts per MoE layer, or 0 for a dense model.
      num_groups: groups G that the tokens of one batch are divided into for routing. It belongs
        to the model, not to the machine: routing is the same on any number of devices.
      slots_per_token: slots over all experts for each token of a group; 2.0 is the paper's
        capacity 2S/E.
      eval_slots_per_token: the same when evaluating and decoding; None drops nothing, which takes
        S slots in every expert.
      second_expert: "random" dispatches the second expert with probability 2 g2 (the paper),
        "always" or "never".
      choices: experts per token. With more than the paper's two all are always used, weighed by a
        softmax over them, and `second_expert` has to be "always": for experts that were split.
      dispatch: "einsum" is the paper's Algorithm 2, "gather" moves rows by index.
      dropout_rate: on embeddings, on each residual branch and on attention weights, as the paper
        has it; a multiple of 2**-16.
      attention_dropout_rate: on attention weights, where it is another; None for `dropout_rate`.
      dtype: of activations; parameters, router and softmax stay float32, and are float64 where
        activations are: what depends on rounding alone shows there.
      remat: "none" keeps all activations for the backward pass, "full" keeps one per pair of
        layers, "save_dispatch" also keeps what crossed the all-to-alls; a tuple names the blocks
        of which only the input is kept: "attention", "feed_forward", "experts".
      pipeline_microbatches: parts of a batch that go through the pipeline one after the other,
        where the rules split "layer" over a mesh axis; None for as many as there are stages. It
        changes no number, only how long stages are idle: (stages - 1) of (parts + stages - 1).
    """

    source_vocab_size: int
    target_vocab_size: int
    max_length: int = 1024
    embed: int = 1024
    mlp: int = 8192
    expert_mlp: int | None = None
    num_heads: int = 16
    head_dim: int = 128
    num_encoder_layers: int = 18
    num_decoder_layers: int = 18
    num_experts: int = 2048
    num_groups: int = 2048
    slots_per_token: float = 2.0
    eval_slots_per_token: float | None = None
    second_expert: SecondExpert = "random"
    choices: int = 2
    dispatch: Dispatch = "einsum"
    dropout_rate: float = 0.1
    attention_dropout_rate: float | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    pipeline_microbatches: int | None = None

    def __post_init__(self):
        if isinstance(self.remat, list):  # as gin has it, and no key of a dict
            object.__setattr__(self, "remat", tuple(self.remat))
        if faults := list(self._faults()):
            raise ValueError("TransformerConfig: " + "; ".join(faults))

    @property
    def dropout_of_attention(self) -> float:
        """The rate on attention weights."""
        rate = self.attention_dropout_rate
        return self.dropout_rate if rate is None else rate

    @property
    def expert_width(self) -> int:
        """The hidden width of each expert."""
        return self.mlp if self.expert_mlp is None else self.expert_mlp

    @property
    def narrow(self) -> bool:
        """Whether activations have fewer bits than parameters."""
        return jnp.dtype(self.dtype).itemsize < jnp.dtype(jnp.float32).itemsize

    def _faults(self) -> Iterator[str]:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = {"num_experts": 0, "choices": 2}.get(field.name, 1)
            if field.type in (int, "int") and not is_whole(value, least):
                yield f"{field.name}={value!r} must be an integer of at least {least}"
            elif field.name.endswith("coder_layers") and value % 2:
                yield (
                    f"{field.name}={value} must be even: layers come in pairs, one with experts "
                    "and one dense"
                )
        if not is_share(self.dropout_rate):
            yield f"dropout_rate={self.dropout_rate!r} must be a number in [0, 1)"
        if (rate := self.attention_dropout_rate) is not None and not is_share(rate):
            yield f"attention_dropout_rate={rate!r} must be a number in [0, 1), or None"
        for name in ("expert_mlp", "pipeline_microbatches"):
            if (value := getattr(self, name)) is not None and not is_whole(value, 1):
                yield f"{name}={value!r} must be an integer of at least 1, or None"
        yield from self._choice_faults()
        if fault := remat_fault(self.remat, self.num_experts):
            yield fault
        for name, kinds in (("dispatch", Dispatch), ("second_expert", SecondExpert)):
            if (value := getattr(self, name)) not in (allowed := get_args(kinds)):
                yield f"{name}={value!r} must be one of {', '.join(allowed)}"
        if self.dtype not in DTYPES:
            yield f"dtype={self.dtype!r} must be float32, bfloat16 or (for tests) float64"
        elif jax.dtypes.canonicalize_dtype(self.dtype) != self.dtype:
            yield "dtype='float64' needs a program started with JAX_ENABLE_X64=1 in its environment"

    def _choice_faults(self) -> Iterator[str]:
        if not is_whole(self.choices, 3) or not is_whole(self.num_experts, 0):
            return
        if 0 < self.num_experts < self.choices:
            yield f"choices={self.choices} must be at most num_experts={self.num_experts}"
        if self.second_expert != "always":
            yield (
                f"choices={self.choices} needs second_expert='always', not "
                f"{self.second_expert!r}: the coin is for the second of two"
            )
