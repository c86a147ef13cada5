import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_m4 import packing
from gshard_m4.encoding import Tokens
from gshard_m4.packing import Packing, pack

LENGTHS = {"inputs": 10, "targets": 7}


def tokens(*texts):
    return Tokens(
        np.array([i for ids in texts for i in ids], np.int32),
        np.array([len(ids) for ids in texts], np.int64),
        0,
    )


def test_two_examples_in_a_row_as_in_seqios_documentation():
    # The example of EncDecFeatureConverter(pack=True), docstring of seqio 0.0.20.
    sides = {
        "inputs": tokens([7, 8, 5, 1], [8, 4, 9, 3, 1]),
        "targets": tokens([3, 9, 1], [4, 1]),
    }
    batch, dropped = pack(sides, LENGTHS, rows=1)
    assert dropped == 0
    assert {name: array.tolist() for name, array in batch.items()} == {
        "encoder_input_tokens": [[7, 8, 5, 1, 8, 4, 9, 3, 1, 0]],
        "encoder_segment_ids": [[1, 1, 1, 1, 2, 2, 2, 2, 2, 0]],
        "encoder_positions": [[0, 1, 2, 3, 0, 1, 2, 3, 4, 0]],
        "decoder_target_tokens": [[3, 9, 1, 4, 1, 0, 0]],
        "decoder_input_tokens": [[0, 3, 9, 0, 4, 0, 0]],
        "decoder_loss_weights": [[1, 1, 1, 1, 1, 0, 0]],
        "decoder_segment_ids": [[1, 1, 1, 2, 2, 0, 0]],
        "decoder_positions": [[0, 1, 2, 0, 1, 0, 0]],
    }
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}


def test_longest_first_into_the_row_most_like_it_and_what_fits_nowhere_is_dropped():
    sides = {
        "inputs": tokens([2, 1], [3] * 7 + [1], [4] * 3 + [1], [5] * 6 + [1]),
        "targets": tokens([6, 1], [7, 1], [8] * 4 + [1], [9] * 4 + [1]),
    }
    # Shares of a row: .2 .29, .8 .29, .4 .71, .7 .71; in order 1, 2, 3, 0.
    # 1 goes to row 0, 2 to row 1 (in row 0 two tokens are left), 3 fits nowhere, 0 in row 0.
    batch, dropped = pack(sides, LENGTHS, rows=2)
    assert dropped == 1
    assert batch["encoder_input_tokens"].tolist() == [
        [2, 1, 3, 3, 3, 3, 3, 3, 3, 1],
        [4, 4, 4, 1, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["decoder_target_tokens"].tolist() == [
        [6, 1, 7, 1, 0, 0, 0],
        [8, 8, 8, 8, 1, 0, 0],
    ]
    assert batch["decoder_segment_ids"].tolist() == [
        [1, 1, 2, 2, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
    ]


def test_what_is_too_much_for_a_window_is_dropped_from_its_end_and_not_by_length():
    short, long = [2, 1], [3] * 7 + [1]
    for texts, kept in (
        ([short, long, short, short], [2, 1] + [3] * 7 + [1]),
        ([short, short, short, long], [2, 1] * 3),
    ):
        sides = {"inputs": tokens(*texts), "targets": tokens(*[[1]] * 4)}
        batch, dropped = pack(sides, LENGTHS, rows=1)
        ids = batch["encoder_input_tokens"][0]
        assert sorted(ids[ids != 0].tolist()) == sorted(kept)
        assert dropped == 4 - batch["encoder_segment_ids"].max()


def unpack(batch):
    """The (inputs, targets) of every segment of every row."""
    found = []
    for r in range(len(batch["encoder_segment_ids"])):
        for segment in range(1, batch["encoder_segment_ids"][r].max(initial=0) + 1):
            x = batch["encoder_input_tokens"][r][batch["encoder_segment_ids"][r] == segment]
            y = batch["decoder_target_tokens"][r][batch["decoder_segment_ids"][r] == segment]
            found.append((tuple(x.tolist()), tuple(y.tolist())))
    return found


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(1, 10), st.integers(1, 7)), min_size=1, max_size=40),
    rows=st.integers(1, 6),
)
def test_every_example_is_in_one_row_whole_or_dropped_because_no_row_has_room(pairs, rows):
    texts = [([100 * i + 2] * (n - 1) + [1], [100 * i + 3] * (m - 1) + [1])
             for i, (n, m) in enumerate(pairs)]  # fmt: skip
    sides = {"inputs": tokens(*(x for x, _ in texts)), "targets": tokens(*(y for _, y in texts))}
    batch, dropped = pack(sides, LENGTHS, rows)
    found = unpack(batch)
    given_ = [(tuple(x), tuple(y)) for x, y in texts]
    assert len(found) + dropped == len(texts)
    rest = list(given_)
    for pair in found:
        rest.remove(pair)
    free = zip(
        (batch["encoder_segment_ids"] == 0).sum(axis=1),
        (batch["decoder_segment_ids"] == 0).sum(axis=1),
        strict=True,
    )
    assert all(len(x) > n or len(y) > m for n, m in free for x, y in rest)
    for side, ids in (("encoder", "encoder_input_tokens"), ("decoder", "decoder_target_tokens")):
        segments, positions = batch[f"{side}_segment_ids"], batch[f"{side}_positions"]
        assert ((segments == 0) == (batch[ids] == 0)).all()
        starts = np.diff(segments, axis=1, prepend=0) > 0
        assert ((positions == 0) == (starts | (segments == 0))).all()


def test_a_row_that_nothing_went_into_is_padding():
    batch, dropped = pack({"inputs": tokens([5, 1]), "targets": tokens([1])}, LENGTHS, rows=3)
    assert dropped == 0
    assert not any(array[1:].any() for array in batch.values())


@pytest.mark.parametrize(
    ("length", "batch_size", "rows"),
    [(256, 64, 64), (256, 512, 128), (64, 256, 256), (64, 1536, 512), (256, 131, 1), (65536, 8, 1)],
)
def test_a_window_has_the_most_rows_that_divide_the_batch(length, batch_size, rows):
    assert packing.window_rows(Packing(), length, batch_size) == rows


def test_rows_that_do_not_divide_the_batch_are_refused():
    for rows in (0, 48):
        message = f"packing: window_rows {rows} does not divide batch_size 64"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            packing.window_rows(Packing(window_rows=rows), 256, 64)


def test_as_many_examples_as_fit_on_the_side_that_is_full_first():
    even = {"inputs": tokens(*[[1] * 4] * 50), "targets": tokens(*[[1] * 2] * 50)}
    # Without spread there is no margin: 6 * (10 - 0.15 * 4) / 4 and 6 * (7 - 0.15 * 2) / 2.
    assert packing.window_examples(6, LENGTHS, even) == 14
    assert packing.window_examples(6, {"inputs": 10, "targets": 3}, even) == 8
    assert packing.window_examples(1, {"inputs": 4, "targets": 2}, even) == 1
    # Long rows are filled to 98.5 %.
    assert packing.window_examples(1, {"inputs": 4000, "targets": 2000}, even) == 985
    uneven = {"inputs": tokens(*[[1] * 1, [1] * 7] * 25), "targets": even["targets"]}
    # Mean 4, spread 3/4: n * 4 * (1 + 3/4 * (1.65 / sqrt(n) + 1 / sqrt(50))) <= 56.4 up to n = 9.
    assert packing.window_examples(6, LENGTHS, uneven) == 9
