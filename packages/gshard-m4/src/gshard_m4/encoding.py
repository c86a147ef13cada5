"""Pairs of text as the arrays that a model trains on, under T5X's names.

Axes: B examples of a batch, L length, N tokens of all examples in a row after the other.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gshard_m4.corpus import Pair
from gshard_m4.vocabulary import EOS, PAD, Vocabulary

SIDES = ("inputs", "targets")
# The names of T5X and of seqio's EncDecFeatureConverter.
FEATURES = (
    "encoder_input_tokens",
    "decoder_target_tokens",
    "decoder_input_tokens",
    "decoder_loss_weights",
)
PACKED_FEATURES = (
    "encoder_segment_ids",
    "encoder_positions",
    "decoder_segment_ids",
    "decoder_positions",
)
Batch = dict[str, Int32[np.ndarray, "B L"]]


class Tokens(NamedTuple):
    """The ids of several texts, one after the other, each with its end of sentence.

    Attributes:
        ids_N: of all texts.
        lengths_B: of each text.
        cut: how many texts were longer than a row.
    """

    ids_N: Int32[np.ndarray, " N"]
    lengths_B: Int64[np.ndarray, " B"]
    cut: int


class Encoder:
    """Turns pairs into ids, and ids into the arrays of a batch with one pair a row."""

    def __init__(self, vocabularies: Mapping[str, Vocabulary], lengths: Mapping[str, int]):
        self._vocabularies = vocabularies
        self.lengths = lengths

    def __call__(self, pairs: Sequence[Pair]) -> Batch:
        """The arrays of a batch with one pair a row."""
        return unpacked(self.encode(pairs), self.lengths)

    def encode(self, pairs: Sequence[Pair]) -> dict[str, Tokens]:
        """The ids of both sides, at most a row long; the end of sentence stays."""
        texts = zip(*pairs, strict=True)
        return {side: self._tokens(side, part) for side, part in zip(SIDES, texts, strict=True)}

    def _tokens(self, side: str, texts: Sequence[str]) -> Tokens:
        room = self.lengths[side] - 1
        encoded = self._vocabularies[side].encode_batch(texts)
        cut = sum(len(ids) > room for ids in encoded)
        rows = [[*ids[:room], EOS] for ids in encoded]
        lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = itertools.chain.from_iterable(rows)
        return Tokens(np.fromiter(flat, np.int32, int(lengths_B.sum())), lengths_B, cut)


def unpacked(tokens: Mapping[str, Tokens], lengths: Mapping[str, int]) -> Batch:
    """The arrays of a batch with one example a row."""
    arrays = {}
    for side, (ids_N, lengths_B, _) in tokens.items():
        arrays[side] = np.full((len(lengths_B), lengths[side]), PAD, np.int32)
        arrays[side].ravel()[places(lengths_B, np.arange(len(lengths_B)) * lengths[side])] = ids_N
    shifted_BL = np.zeros_like(arrays["targets"])
    shifted_BL[:, 1:] = arrays["targets"][:, :-1]
    return model_features(arrays["inputs"], arrays["targets"], shifted_BL)


def places(
    lengths_B: Int64[np.ndarray, " B"], starts_B: Int64[np.ndarray, " B"]
) -> Int64[np.ndarray, " N"]:
    """Where each token goes when example b's tokens go to starts_B[b] and the places after it."""
    ends_B = np.cumsum(lengths_B)
    return np.arange(ends_B[-1]) + np.repeat(starts_B - ends_B + lengths_B, lengths_B)


def model_features(
    inputs_BL: Int32[np.ndarray, "B L"],
    targets_BL: Int32[np.ndarray, "B L"],
    shifted_BL: Int32[np.ndarray, "B L"],
) -> Batch:
    """The features of every batch."""
    weights_BL = (targets_BL != PAD).astype(np.int32)
    return dict(zip(FEATURES, (inputs_BL, targets_BL, shifted_BL, weights_BL), strict=True))
