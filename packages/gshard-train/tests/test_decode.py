"""Beam search against an exhaustive search, and its independence of batch-mates."""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train.decode import VARYING, BeamSearch, translate

VOCAB, LENGTH = 5, 4
# log p(next | previous) for each source sentence: a tiny language model that the source selects.
TABLES = np.log(np.random.default_rng(1).dirichlet(np.ones(VOCAB) * 0.4, size=(8, VOCAB)))
TABLES[5, :, 1] = -1e6  # sentence 5 never ends


class Kept(NamedTuple):
    """Stands in for the model's kept keys and values."""

    kept: jax.Array
    tables: jax.Array


class Bigrams:
    """A model whose next token depends on the source's number and the previous token."""

    def start_decoding(self, source_BT, *, beams, length):
        del length
        tables = jnp.asarray(TABLES, jnp.float32)[source_BT[:, 0] - 1]
        return Kept(jnp.zeros((1, source_BT.shape[0] * beams, 1)), tables)

    def decode_step(self, tokens_BK, index, state, live_BK):
        del index, live_BK
        return jax.vmap(lambda table, tokens: table[tokens])(state.tables, tokens_BK), state


def score(table: np.ndarray, tokens: tuple[int, ...], alpha: float) -> float:
    steps = zip((0, *tokens), (*tokens, 1), strict=True)
    return sum(table[a, b] for a, b in steps) / ((5 + len(tokens) + 1) / 6) ** alpha


def best(table: np.ndarray, alpha: float) -> tuple[tuple[int, ...], float]:
    """The best of all sequences that end within LENGTH tokens."""
    candidates = (
        tokens for n in range(LENGTH) for tokens in itertools.product(range(2, VOCAB), repeat=n)
    )
    return max(((t, score(table, t, alpha)) for t in candidates), key=lambda pair: pair[1])


def search(source, mesh, beams, alpha=0.8):
    @jax.jit
    def run(source):
        with rules_scope(DEFAULT_RULES, mesh, varying=VARYING):
            return translate(
                Bigrams(), source, length=LENGTH, search=BeamSearch(beams=beams, alpha=alpha)
            )

    return jax.tree.map(np.asarray, run(source))


@pytest.mark.parametrize("alpha", [0.0, 0.8])
def test_a_wide_beam_finds_the_best_of_all_sequences(one_device, alpha):
    source = np.array([[1], [2], [3], [4]])
    found = search(source, one_device, beams=27, alpha=alpha)
    for row in range(4):
        tokens, value = best(TABLES[row], alpha)
        assert tuple(t for t in found.tokens_BL[row] if t) == tokens
        assert math.isclose(found.score_B[row], value, rel_tol=1e-5)
    assert not found.truncated_B.any()


def test_greedy_search_follows_the_best_token(one_device):
    found = search(np.array([[1], [2], [3], [4]]), one_device, beams=1)
    for row in range(4):
        previous, tokens = 0, []
        for _ in range(LENGTH):
            allowed = TABLES[row, previous].copy()
            allowed[[0, 1]] = -np.inf
            previous = int(allowed.argmax())
            tokens.append(previous)
        # Greedy search keeps one living hypothesis and the best of its ends.
        ends = [tuple(tokens[:n]) for n in range(LENGTH)]
        expected = max(ends, key=lambda t: score(TABLES[row], t, 0.8))
        assert tuple(t for t in found.tokens_BL[row] if t) == expected


def test_a_sentence_does_not_depend_on_its_batch(one_device):
    alone = search(np.array([[3]]), one_device, beams=2)
    together = search(np.array([[6], [3], [0], [7]]), one_device, beams=2)
    np.testing.assert_array_equal(together.tokens_BL[1], alone.tokens_BL[0])
    assert together.score_B[1] == alone.score_B[0]


def test_a_sentence_that_never_ends_is_called_truncated(one_device):
    found = search(np.array([[6], [1]]), one_device, beams=2)
    np.testing.assert_array_equal(found.truncated_B, [True, False])
    assert (found.tokens_BL[0] > 1).all()


def test_eight_devices_search_as_one(mesh, one_device):
    source = np.arange(1, 9)[:, None]
    one, eight = search(source, one_device, beams=3), search(source, mesh, beams=3)
    jax.tree.map(np.testing.assert_array_equal, eight, one)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="BeamSearch: beams=0 must be an integer of at least 1"):
        BeamSearch(beams=0)
    with pytest.raises(ValueError, match=r"alpha=-0.1 must be at least 0; kept='flt' must be one"):
        BeamSearch(alpha=-0.1, kept="flt")  # pyright: ignore[reportArgumentType]
