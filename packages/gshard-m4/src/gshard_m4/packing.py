"""Several examples in a row, both sides together, in windows of fixed size.

A window is a fixed number of examples that go into a fixed number of rows. It is packed by itself,
so what stands in a row depends on the window's examples alone, and batch i stays a function of the
seed and i. Rows that stay free and examples that do not fit are the price, and are counted.

The rule: the longest first, by the side that takes the larger share of a row; each goes into the
row where it fits and whose room is most like it (the largest product of its lengths and the room,
both as shares of a row); what fits nowhere is dropped. Where a window holds more than 98.5 % of its
rows on a side, the examples after that come last: so what is dropped follows the order of examples
and not, as longest first alone would have it, their length. In a row, examples keep their order.

Axes: B examples of a window, R rows, L length, N tokens of all examples.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int32, Int64

from gshard_m4.encoding import PACKED_FEATURES, SIDES, Batch, Tokens, model_features, places
from gshard_m4.vocabulary import PAD

# Windows below this vary much in length; above it they take memory and fill hardly better.
_WINDOW_TOKENS = 32768
# Share of a window's rows that the rule fills before something does not fit.
_REACHED = 0.985
# What stays free at the end of a row, in mean lengths of an example.
_LOST = 0.15
# Standard deviations that are kept free on top: of a window's length, and of the sample's mean.
_WINDOW_MARGIN = 1.65
_SAMPLE_MARGIN = 1.0
SAMPLE = 8192
GOOD_FILL = 0.85
# Up to here, products of four lengths fit into 64 bits.
LONGEST_ROW = 1 << 15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """How examples are packed.

    Attributes:
        window_rows: rows of a window, a divisor of the batch size; by default the largest with at
            most 32,768 tokens of "inputs".
        window_examples: examples of a window; by default what the first 8,192 examples say will
            fit.
    """

    window_rows: int | None = None
    window_examples: int | None = None


@dataclasses.dataclass(frozen=True)
class Window:
    """Sizes that are the same for all windows of a feed."""

    rows: int
    examples: int


def window_rows(packing: Packing, inputs_length: int, batch_size: int) -> int:
    """Rows of a window.

    Raises:
        ValueError: where they do not divide the batch.
    """
    if packing.window_rows is None:
        most = max(1, _WINDOW_TOKENS // inputs_length)
        return max(n for n in range(1, min(most, batch_size) + 1) if batch_size % n == 0)
    if packing.window_rows < 1 or batch_size % packing.window_rows:
        raise ValueError(
            f"packing: window_rows {packing.window_rows} does not divide batch_size {batch_size}"
        )
    return packing.window_rows


def window_examples(rows: int, lengths: Mapping[str, int], sample: Mapping[str, Tokens]) -> int:
    """How many examples fill a window's rows so that hardly any is dropped.

    On the side that is full first, the mean length of that many examples and a margin for how
    lengths vary, in a window and in the sample, are what packing reaches.
    """
    return max(1, min(_fitting(rows, lengths[side], sample[side]) for side in lengths))


def _fitting(rows: int, length: int, tokens: Tokens) -> int:
    count = len(tokens.lengths_B)
    # Sums of integers: the same on every machine.
    mean = int(tokens.lengths_B.sum()) / count
    spread = math.sqrt(max(0.0, int((tokens.lengths_B**2).sum()) / count - mean**2)) / mean
    room = min(_REACHED, 1 - _LOST * mean / length) * rows * length
    fits = int(room / mean)
    while fits > 1:
        margin = spread * (_WINDOW_MARGIN / math.sqrt(fits) + _SAMPLE_MARGIN / math.sqrt(count))
        if fits * mean * (1 + margin) <= room:
            break
        fits -= 1
    return fits


def advice(window: Window, lengths: Mapping[str, int], sample: Mapping[str, Tokens]) -> str | None:
    """What would fill rows better, where a side will stay below 85 %."""
    fill = {
        side: window.examples * float(sample[side].lengths_B.mean()) / (window.rows * lengths[side])
        for side in lengths
    }
    less, more = sorted(fill, key=lambda side: fill[side])
    found = f"packing fills {fill['inputs']:.0%} of inputs and {fill['targets']:.0%} of targets"
    if fill[more] < GOOD_FILL:
        return f"{found}: windows of {window.rows} rows are small, a larger batch_size fills better"
    if fill[less] < GOOD_FILL:
        length = round(lengths[less] * fill[less] / fill[more])
        return f"{found}: {lengths[more]} {more} go with {length} {less} in this text"
    return None


def pack(tokens: Mapping[str, Tokens], lengths: Mapping[str, int], rows: int) -> tuple[Batch, int]:
    """The arrays of a window under seqio's names for packed features, and how many were dropped."""
    row_B = row_of_each(tokens, lengths, rows)
    kept_B = np.flatnonzero(row_B >= 0)
    order_B = kept_B[np.argsort(row_B[kept_B], kind="stable")]
    sides = [
        _lay_out(tokens[side], order_B, row_B[order_B], (rows, lengths[side])) for side in SIDES
    ]
    (inputs_RL, *input_places), (targets_RL, *target_places) = sides
    shifted_RL = np.zeros_like(targets_RL)
    shifted_RL[:, 1:] = np.where(target_places[1][:, 1:] > 0, targets_RL[:, :-1], PAD)
    batch = model_features(inputs_RL, targets_RL, shifted_RL)
    batch |= zip(PACKED_FEATURES, (*input_places, *target_places), strict=True)
    return batch, len(row_B) - len(kept_B)


def row_of_each(
    tokens: Mapping[str, Tokens], lengths: Mapping[str, int], rows: int
) -> Int64[np.ndarray, " B"]:
    """The row of each example of a window, -1 where there is none.

    Shares are compared as integers, times both lengths: the same on every machine.
    """
    inputs_B, targets_B = tokens["inputs"].lengths_B, tokens["targets"].lengths_B
    n, m = lengths["inputs"], lengths["targets"]
    over_B = np.cumsum(inputs_B) > int(_REACHED * rows * n)
    over_B |= np.cumsum(targets_B) > int(_REACHED * rows * m)
    order_B = np.lexsort((-np.maximum(inputs_B * m, targets_B * n), over_B))
    input_room_R, target_room_R = np.full((2, rows), [[n], [m]])
    row_B = np.full(len(inputs_B), -1)
    for b in order_B.tolist():
        x, y = int(inputs_B[b]), int(targets_B[b])
        alike_R = input_room_R * (x * m * m) + target_room_R * (y * n * n)
        row = alike_R.argmax()
        if input_room_R[row] < x or target_room_R[row] < y:
            alike_R[(input_room_R < x) | (target_room_R < y)] = -1
            row = alike_R.argmax()
            if alike_R[row] < 0:
                continue
        row_B[b] = row
        input_room_R[row] -= x
        target_room_R[row] -= y
    return row_B


def _lay_out(
    tokens: Tokens,
    order_B: Int64[np.ndarray, " B"],
    row_B: Int64[np.ndarray, " B"],
    shape: tuple[int, int],
) -> tuple[Int32[np.ndarray, "R L"], Int32[np.ndarray, "R L"], Int32[np.ndarray, "R L"]]:
    """Ids, segments from 1 and positions of examples in the order of their rows."""
    lengths_B = tokens.lengths_B[order_B]
    first_B = np.searchsorted(row_B, row_B)  # The first example of each one's row.
    before_B = np.cumsum(lengths_B) - lengths_B
    start_B = row_B * shape[1] + before_B - before_B[first_B]
    at_N = places(lengths_B, start_B)
    from_B = (np.cumsum(tokens.lengths_B) - tokens.lengths_B)[order_B]
    arrays = np.zeros((3, *shape), np.int32)
    ids_RL, segments_RL, positions_RL = arrays
    ids_RL.ravel()[at_N] = tokens.ids_N[places(lengths_B, from_B)]
    segments_RL.ravel()[at_N] = np.repeat(np.arange(len(row_B)) - first_B + 1, lengths_B)
    positions_RL.ravel()[at_N] = at_N - np.repeat(start_B, lengths_B)
    return ids_RL, segments_RL, positions_RL
