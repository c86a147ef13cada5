"""Searching for translations: beam search, greedy choice, or sampling.

Every sentence is searched by itself: its result does not depend on what else is in the batch.
Axes: B batch, T source length, L target length.
"""

import dataclasses
from collections.abc import Iterator
from typing import Literal, get_args

from jaxtyping import Array, Int, PRNGKeyArray

from gshard_train.decoding.beam import Reordered, beam_search
from gshard_train.decoding.flat_beam import Flat
from gshard_train.decoding.hypotheses import EOS_ID as EOS_ID
from gshard_train.decoding.hypotheses import Translations as Translations
from gshard_train.decoding.sampling import sample
from gshard_train.models.transformer import EncoderDecoder
from gshard_train.ranges import is_number, is_whole

# Logical names that vary, for `rules_scope`: whole sentences are encoded, then each position of
# every hypothesis is decoded by itself.
VARYING = ("batch", "target_length")

Kept = Literal["reordered", "flat"]
_KEEPING = {"reordered": Reordered, "flat": Flat}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The best translation that a beam finds.

    Attributes:
      beams: hypotheses kept for each sentence. 1 follows the likeliest token and takes the best
        place to end; for the greedy choice use `Sampling(temperature=0.0)`.
      alpha: scores are log probabilities over ((5 + length) / 6) ** alpha (GNMT's length
        normalisation, arXiv 1609.08144, equation 14; GShard's authors use 0.8).
      kept: what happens to keys and values when hypotheses change places. "reordered" copies them
        at each position; "flat" is the paper's flat beam (A.1), which never moves them and pays
        with attention that is `beams` times longer. The results are the same.
    """

    beams: int = 4
    alpha: float = 0.8
    kept: Kept = "reordered"

    def __post_init__(self):
        if faults := list(self._faults()):
            raise ValueError("BeamSearch: " + "; ".join(faults))

    def _faults(self) -> Iterator[str]:
        if not is_whole(self.beams, 1):
            yield f"beams={self.beams!r} must be an integer of at least 1"
        if not is_number(self.alpha) or not self.alpha >= 0:
            yield f"alpha={self.alpha!r} must be at least 0"
        if self.kept not in (allowed := get_args(Kept)):
            yield f"kept={self.kept!r} must be one of {', '.join(allowed)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """One translation drawn token by token.

    A sentence's draws come from the seed and its number in its task: they change neither with the
    batch nor with its size.

    Attributes:
      temperature: what logits are divided by; 0 takes the likeliest token (greedy).
      top_k: draw among the k likeliest tokens only.
      top_p: draw among the likeliest tokens that together reach this probability only.
      seed: of all draws.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self):
        if faults := list(self._faults()):
            raise ValueError("Sampling: " + "; ".join(faults))

    def _faults(self) -> Iterator[str]:
        if not is_number(self.temperature) or not 0 <= self.temperature < float("inf"):
            yield f"temperature={self.temperature!r} must be a number of at least 0"
        if self.top_k is not None and not is_whole(self.top_k, 1):
            yield f"top_k={self.top_k!r} must be an integer of at least 1, or None for all tokens"
        if self.top_p is not None and (not is_number(self.top_p) or not 0 < self.top_p <= 1):
            yield f"top_p={self.top_p!r} must lie in (0, 1], or be None for all tokens"
        if self.temperature == 0 and (self.top_k is not None or self.top_p is not None):
            yield "temperature=0 takes the likeliest token; leave top_k and top_p out"
        if not is_whole(self.seed, 0) or self.seed >= 2**32:
            yield f"seed={self.seed!r} must be an integer from 0 to 2**32 - 1"


Search = BeamSearch | Sampling


def translate(
    model: EncoderDecoder,
    source_BT: Int[Array, "B T"],
    *,
    length: int,
    search: Search,
    key_B: PRNGKeyArray | None = None,
) -> Translations:
    """A translation of each sentence in at most `length` tokens, the end included.

    A row of padding alone ends at once.

    Args:
      model: what translates.
      source_BT: source tokens, 0 where padded.
      length: longest translation.
      search: how it is searched for.
      key_B: a random key for each sentence, for sampling at a temperature above 0.

    Raises:
      ValueError: sampling without keys.
    """
    if isinstance(search, BeamSearch):
        return beam_search(
            model,
            source_BT,
            length=length,
            beams=search.beams,
            alpha=search.alpha,
            keeping=_KEEPING[search.kept](),
        )
    if search.temperature > 0 and key_B is None:
        raise ValueError(
            f"translate: key_B is missing; {search} draws tokens, so give each of the "
            f"{source_BT.shape[0]} sentences a key"
        )
    return sample(
        model,
        source_BT,
        length=length,
        temperature=search.temperature,
        top_k=search.top_k,
        top_p=search.top_p,
        key_B=key_B,
    )
