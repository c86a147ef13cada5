"""Sampling against the probabilities it draws from, and its independence of batch-mates."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train.decode import VARYING, Sampling, translate
from gshard_train.decoding.sampling import restrict

VOCAB, LENGTH = 6, 5
# log p(next | previous) for each source sentence: a tiny language model that the source selects.
TABLES = np.log(np.random.default_rng(4).dirichlet(np.ones(VOCAB), size=(8, VOCAB)))


class Bigrams:
    """A model whose next token depends on the source's number and the previous token."""

    def start_decoding(self, source_BT, *, beams, length):
        assert (beams, length) == (1, LENGTH)
        return jnp.asarray(TABLES, jnp.float32)[source_BT[:, 0] - 1]

    def decode_step(self, tokens_BK, index, tables, live_BK):
        del index, live_BK
        return jax.vmap(lambda table, tokens: table[tokens])(tables, tokens_BK), tables


def draw(source, mesh, numbers, **settings):
    search = Sampling(**settings)

    @jax.jit
    def run(source, numbers):
        keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(search.seed), n))(numbers)
        with rules_scope(DEFAULT_RULES, mesh, varying=VARYING):
            return translate(Bigrams(), source, length=LENGTH, search=search, key_B=keys)

    return jax.tree.map(np.asarray, run(np.asarray(source)[:, None], np.asarray(numbers)))


def log_probability(table: np.ndarray, tokens: np.ndarray, truncated: bool) -> float:
    """Of a sentence, with padding left out of what may follow."""
    words = [int(t) for t in tokens if t] + ([] if truncated else [1])
    total, previous = 0.0, 0
    for word in words:
        total += table[previous, word] - np.log(np.exp(table[previous, 1:]).sum())
        previous = word
    return total


def test_at_temperature_0_the_likeliest_token_is_taken_until_it_is_the_end(one_device):
    found = draw(range(1, 9), one_device, range(8), temperature=0.0)
    for row, table in enumerate(TABLES):
        tokens, previous, ended = [], 0, False
        while len(tokens) < LENGTH and not ended:
            previous = 1 + int(table[previous, 1:].argmax())
            ended = previous == 1
            tokens += [] if ended else [previous]
        assert [t for t in found.tokens_BL[row] if t] == tokens
        assert found.truncated_B[row] == (not ended)
        expected = log_probability(table, found.tokens_BL[row], not ended)
        assert math.isclose(found.score_B[row], expected, rel_tol=1e-5, abs_tol=1e-6)


def test_first_tokens_are_drawn_as_often_as_they_are_likely(one_device):
    count = 4000
    found = draw([3] * count, one_device, range(count), temperature=1.5, seed=2)
    weights = np.exp(TABLES[2, 0] / 1.5) * (np.arange(VOCAB) > 0)
    first = np.where(found.tokens_BL[:, 0] == 0, 1, found.tokens_BL[:, 0])
    shares = np.bincount(first, minlength=VOCAB) / count
    # Five standard deviations of a share.
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=5 * 0.5 / count**0.5)
    row = int(np.flatnonzero(found.tokens_BL[:, 0])[0])
    expected = log_probability(TABLES[2], found.tokens_BL[row], found.truncated_B[row])
    assert math.isclose(found.score_B[row], expected, rel_tol=1e-5)


def test_a_draw_depends_on_seed_and_number_alone(one_device, mesh):
    settings = {"temperature": 1.0, "top_k": 4, "seed": 5}
    alone = draw([4], one_device, [11], **settings)
    source, numbers = [1, 4, 0, 4, 7, 4, 2, 8], [11, 12, 13, 11, 11, 14, 15, 16]
    for devices in (one_device, mesh):
        together = draw(source, devices, numbers, **settings)
        np.testing.assert_array_equal(together.tokens_BL[3], alone.tokens_BL[0])
        assert together.score_B[3] == alone.score_B[0]
        assert together.score_B[2] == 0  # a row of padding
        assert not together.tokens_BL[2].any()
        assert not together.truncated_B[2]
    other = draw([4] * 30, one_device, range(30), **settings)
    assert len({tuple(row) for row in other.tokens_BL}) > 3


@pytest.mark.parametrize(("top_k", "top_p"), [(2, None), (None, 0.6), (3, 0.7), (9, 1.0)])
def test_only_the_likeliest_tokens_are_left(top_k, top_p):
    logits_BV = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32)
    found = np.asarray(restrict(jnp.asarray(logits_BV), top_k=top_k, top_p=top_p))
    for logits, restricted in zip(logits_BV, found, strict=True):
        kept = sorted(range(7), key=lambda token: -logits[token])[:top_k]
        weights = np.exp(logits[kept]) / np.exp(logits[kept]).sum()
        needed = next((n for n in range(1, 8) if weights[:n].sum() >= (top_p or 1) - 1e-6), 7)
        assert set(np.flatnonzero(restricted > -1e8)) == set(kept[:needed])


def test_settings_that_cannot_be_are_refused(one_device):
    wrong = r"temperature=-1.0 must .*; top_k=0 must .*; top_p=1.5 must lie in \(0, 1\].*; seed=-2"
    with pytest.raises(ValueError, match=f"Sampling: {wrong}"):
        Sampling(temperature=-1.0, top_k=0, top_p=1.5, seed=-2)
    with pytest.raises(ValueError, match="temperature=0 takes the likeliest token"):
        Sampling(temperature=0, top_k=3)
    with pytest.raises(ValueError, match=r"key_B is missing.*each of the 3 sentences"):
        translate(None, jnp.ones((3, 2), int), length=4, search=Sampling())  # pyright: ignore
