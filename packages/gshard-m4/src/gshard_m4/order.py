"""The order of training examples: which row of which part stands at a global index.

Nothing is stored and nothing is drawn one after the other: a place is computed from the seed and
its index, for a whole batch at once, in integers that are the same on every machine. Parts are
mixed in windows of a fixed number of places, in each of which a part has the same number, spread
evenly with a random offset. A part's rows are permuted anew for every pass over it.

Axes: W places of a window, B places asked for, K parts.
"""

import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, UInt64

WINDOW = 1 << 16
_ROUNDS = 4
Words = UInt64[np.ndarray, " B"]


class Order:
    """An endless sequence of (part, row), mixed at given rates and shuffled by a seed."""

    def __init__(self, sizes: Sequence[int], rates: Sequence[float], *, seed: int):
        """Sizes are rows of each part, rates its share of the places; rates sum to 1.

        Raises:
            ValueError: where a part would never be seen.
        """
        self._sizes_K = np.asarray(sizes, np.uint64)
        self._half_bits_K = np.asarray([(n.bit_length() + 1) // 2 for n in sizes], np.uint64)
        edges = np.rint(np.cumsum([0.0, *rates]) / np.sum(rates) * WINDOW).astype(np.int64)
        self._quotas_K = np.diff(edges)
        for k, quota in enumerate(self._quotas_K):
            if quota < 1 or sizes[k] < 1:
                raise ValueError(
                    f"order: part {k} with {sizes[k]} rows at a rate of {rates[k]:.3g} is never"
                    f" seen; it needs a row and a rate of at least {1 / WINDOW:.3g}"
                )
        self._seed = np.uint64(seed % (1 << 64))
        self._window = functools.lru_cache(maxsize=2)(self._make_window)

    def __getitem__(self, places: slice) -> tuple[Int64[np.ndarray, " B"], Int64[np.ndarray, " B"]]:
        """Part and row of each place from places.start to places.stop."""
        pieces, start = [], places.start
        while start < places.stop:
            index, first = divmod(start, WINDOW)
            count = min(WINDOW - first, places.stop - start)
            pieces.append([a[first : first + count] for a in self._window(index)])
            start += count
        part_B, turn_B = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return part_B, self._rows(part_B, turn_B)

    def _make_window(self, index: int) -> tuple[Int64[np.ndarray, " W"], Int64[np.ndarray, " W"]]:
        """Part of each place of a window, and how often the part was seen before."""
        part_W = np.repeat(np.arange(len(self._quotas_K)), self._quotas_K)
        ends_K = np.cumsum(self._quotas_K)
        nth_W = np.arange(WINDOW) - np.repeat(ends_K - self._quotas_K, self._quotas_K)
        random_W = _hash(self._seed, np.uint64(index), np.arange(WINDOW, dtype=np.uint64))
        offset_W = (random_W >> np.uint64(11)) * 2.0**-53
        order_W = np.argsort((nth_W + offset_W) / self._quotas_K[part_W], kind="stable")
        # The offsets of one part overlap only with their neighbours': count in the order of places.
        part_W = part_W[order_W]
        turn_W = np.empty(WINDOW, np.int64)
        turn_W[np.argsort(part_W, kind="stable")] = nth_W
        return part_W, turn_W + index * self._quotas_K[part_W]

    def _rows(
        self, part_B: Int64[np.ndarray, " B"], turn_B: Int64[np.ndarray, " B"]
    ) -> Int64[np.ndarray, " B"]:
        """The row of each part's turn: every pass over the part is another permutation."""
        size_B = self._sizes_K[part_B]
        epoch_B, x_B = np.divmod(turn_B.astype(np.uint64), size_B)
        key_B = _hash(self._seed, part_B.astype(np.uint64), epoch_B)
        half_B = self._half_bits_K[part_B]
        x_B = _feistel(x_B, key_B, half_B)
        # Cycle walking: what falls outside the part is permuted again until it falls inside.
        while (outside_B := x_B >= size_B).any():
            x_B[outside_B] = _feistel(x_B[outside_B], key_B[outside_B], half_B[outside_B])
        return x_B.astype(np.int64)


def _feistel(x_B: Words, key_B: Words, half_B: Words) -> Words:
    """A permutation of the numbers of 2 * half bits, chosen by the key."""
    mask_B = (np.uint64(1) << half_B) - np.uint64(1)
    left_B, right_B = x_B >> half_B, x_B & mask_B
    for i in range(_ROUNDS):
        mixed_B = _hash(key_B + np.uint64(i), right_B) & mask_B
        left_B, right_B = right_B, left_B ^ mixed_B
    return (left_B << half_B) | right_B


def _hash(first: Words | np.uint64, *words: Words | np.uint64) -> Words:
    """A 64-bit hash of words, elementwise (the finaliser of SplitMix64 after each)."""
    x = np.atleast_1d(first)
    for word in (np.uint64(0), *words):
        x = (x ^ word) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x
