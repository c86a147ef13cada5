"""The ways of routing that a layer can be given, each with what it needs to know of it.

Axes: G groups, S tokens per group, E experts.
"""

import dataclasses
from typing import Protocol, get_args, runtime_checkable

import jax
from jaxtyping import Array, Bool, Float

from gshard_moe.expert_choice import expert_choice
from gshard_moe.gating import SecondExpert, Weights, top2, topk, topk_faults
from gshard_moe.routing import ExpertRouting, Routing


@runtime_checkable
class Router(Protocol):
    """What a layer asks of a way of routing; write another by having the same attributes."""

    @property
    def choices(self) -> float:
        """Experts per token: how many slots a token asks for."""
        ...

    @property
    def sees_later_tokens(self) -> bool:
        """Whether which tokens an expert takes depends on tokens that come later."""
        ...

    def faults(self, num_experts: int) -> list[str]:
        """What is wrong with its arguments for this many experts, one sentence each."""
        ...

    def alone(self, *, deterministic: bool) -> bool:
        """Whether a token's experts depend on it alone while no slot is missing."""
        ...

    def route(
        self,
        logits_GSE: Float[Array, "G S E"],
        *,
        capacity: int,
        mask_GS: Bool[Array, "G S"] | None,
        key: jax.Array | None,
        deterministic: bool,
    ) -> Routing | ExpertRouting:
        """Where each token goes; `key` is one, or one for each group."""
        ...


@dataclasses.dataclass(frozen=True)
class Top2:
    """GShard's: `gating.top2`.

    Attributes:
      second: Whether the second expert is used: "random" (probability 2 g2), "always", "never".
      eval_second: The same when deterministic.
      burn_slots: Whether second choices that lose their coin take up slots all the same.
      normalize_after_dropping: Whether a token that keeps one expert weighs it with 1.
    """

    second: SecondExpert = "random"
    eval_second: SecondExpert = "always"
    burn_slots: bool = False
    normalize_after_dropping: bool = False
    choices = 2
    sees_later_tokens = False

    def faults(self, num_experts: int) -> list[str]:
        """What is wrong with these arguments, one sentence each."""
        del num_experts  # with one expert the second choice is nothing
        allowed = get_args(SecondExpert)
        given = {"second_expert": self.second, "eval_second_expert": self.eval_second}
        faults = [
            f"{name} is {value!r}; give one of {', '.join(map(repr, allowed))}"
            for name, value in given.items()
            if value not in allowed
        ]
        for name in ("burn_slots", "normalize_after_dropping"):
            if not isinstance(value := getattr(self, name), bool):
                faults.append(f"{name} is {value!r}; give True or False")
        return faults

    def alone(self, *, deterministic: bool) -> bool:
        """Not with a coin, which is thrown by the token's place among the others."""
        return (self.eval_second if deterministic else self.second) != "random"

    def route(
        self,
        logits_GSE: Array,
        *,
        capacity: int,
        mask_GS: Array | None,
        key: jax.Array | None,
        deterministic: bool,
    ) -> Routing:
        """Where each token goes."""
        return top2(
            logits_GSE,
            capacity=capacity,
            mask_GS=mask_GS,
            key=key,
            second=self.eval_second if deterministic else self.second,
            burn_slots=self.burn_slots,
            normalize_after_dropping=self.normalize_after_dropping,
        )


@dataclasses.dataclass(frozen=True)
class TopK:
    """The k best experts: `gating.topk`. Switch is k=1, Mixtral k=2 with "choose_then_softmax".

    Attributes:
      k: Experts per token.
      weights: "softmax_then_choose" or "choose_then_softmax".
    """

    k: int
    weights: Weights = "softmax_then_choose"
    sees_later_tokens = False

    @property
    def choices(self) -> int:
        """Experts per token."""
        return self.k

    def faults(self, num_experts: int) -> list[str]:
        """What is wrong with these arguments, one sentence each."""
        return topk_faults(self.k, self.weights, num_experts)

    def alone(self, *, deterministic: bool) -> bool:
        """Always."""
        del deterministic
        return True

    def route(
        self,
        logits_GSE: Array,
        *,
        capacity: int,
        mask_GS: Array | None,
        key: jax.Array | None,
        deterministic: bool,
    ) -> Routing:
        """Where each token goes."""
        del key, deterministic
        return topk(logits_GSE, k=self.k, capacity=capacity, mask_GS=mask_GS, weights=self.weights)


@dataclasses.dataclass(frozen=True)
class ExpertChoice:
    """Experts choose tokens: `expert_choice`. For encoders only: it looks at later tokens.

    Attributes:
      choices: Experts per token in the mean, when the layer's `slots_per_token` does not say.
    """

    choices: float = 2.0
    sees_later_tokens = True

    def faults(self, num_experts: int) -> list[str]:
        """What is wrong with these arguments, one sentence each."""
        if isinstance(self.choices, int | float) and 0 < self.choices <= num_experts:
            return []
        return [f"choices is {self.choices!r}; give more than 0 and at most {num_experts}"]

    def alone(self, *, deterministic: bool) -> bool:
        """Never: an expert compares tokens."""
        del deterministic
        return False

    def route(
        self,
        logits_GSE: Array,
        *,
        capacity: int,
        mask_GS: Array | None,
        key: jax.Array | None,
        deterministic: bool,
    ) -> ExpertRouting:
        """Which tokens each expert takes."""
        del key, deterministic
        return expert_choice(logits_GSE, capacity=capacity, mask_GS=mask_GS)
