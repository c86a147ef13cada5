"""The programs that bench_decode.py times, and the decoder without kept keys and values.

Axes: B batch, T source length, K hypotheses, L target length, M model width, V target vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gshard_annotate import rules_scope
from gshard_train import config, state
from gshard_train.decode import VARYING, Sampling, translate
from gshard_train.decoding.beam import Reordered, beam_search
from gshard_train.decoding.flat_beam import Flat
from gshard_train.decoding.hypotheses import EOS_ID, Translations, pick
from gshard_train.experiment import Experiment
from gshard_train.models.blocks import Source
from gshard_train.models.stack import run as run_layers
from gshard_train.optimizer import adam

GIN_FILE = "gshard_m4/configs/quickstart.gin"
ALPHA = 0.8

Run = Callable[[], Translations]


class _Prefixes(NamedTuple):
    tokens_BKL: Any
    encoded_BTM: Any
    mask_BT: Any


class WholeDecoder:
    """Keeps nothing but tokens: each step runs all layers over all positions of each hypothesis.

    The encoder still runs once, and logits are made for the newest position only.
    """

    def start(self, model, source_BT, *, beams, length):
        """The encoded source, and no tokens."""
        tokens_BKL = jnp.zeros((source_BT.shape[0], beams, length), jnp.int32)
        return _Prefixes(tokens_BKL, model.encode(source_BT), source_BT != 0)

    def step(self, model, tokens_BK, position, state, live_BK):
        """Logits of the newest position of each hypothesis."""
        del live_BK
        batch, beams, length = state.tokens_BKL.shape
        tokens_BKL = jax.lax.dynamic_update_slice_in_dim(
            state.tokens_BKL, tokens_BK[..., None], position, axis=2
        )
        tokens = tokens_BKL.reshape(batch * beams, length)
        context = model.context(jnp.broadcast_to(jnp.arange(length) <= position, tokens.shape))
        source = Source(
            jnp.repeat(state.encoded_BTM, beams, axis=0),
            jnp.repeat(state.mask_BT, beams, axis=0),
            None,
        )
        x = model.target_embedding(tokens, jnp.broadcast_to(jnp.arange(length), tokens.shape))
        x, _ = run_layers(model.decoder, x, context, source, model.config)
        newest = jax.lax.dynamic_index_in_dim(x, position, axis=1, keepdims=False)
        logits = model.logits(newest.reshape(batch, beams, -1))
        return logits, state._replace(tokens_BKL=tokens_BKL)

    def follow(self, state, parent_BK):
        """Moves the tokens."""
        return state._replace(tokens_BKL=pick(state.tokens_BKL, parent_BK))


def programs(*, batch_size: int, length: int, beams: int) -> dict[str, Run]:
    """What decodes one batch in each way and waits for it; compiled, and found to agree."""
    experiment = _quickstart()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "expert"))
    model = state.abstract_model(experiment.model)
    params = _endless(state.create(model, adam(1e-3), experiment.rules, mesh, seed=0).params)
    shape = (batch_size, experiment.task_feature_lengths["inputs"])
    source_BT = np.random.default_rng(0).integers(3, model.config.source_vocab_size, shape)
    one_BT = np.where(np.arange(batch_size)[:, None] == 0, source_BT, 0)
    beam = functools.partial(beam_search, length=length, beams=beams, alpha=ALPHA)
    searches = {
        "whole decoder": functools.partial(beam, keeping=WholeDecoder()),
        "reordered": functools.partial(beam, keeping=Reordered()),
        "flat": functools.partial(beam, keeping=Flat()),
        "greedy": functools.partial(translate, length=length, search=Sampling(temperature=0.0)),
    }
    jitted = {name: _jitted(one, model, experiment, mesh) for name, one in searches.items()}
    found = {name: functools.partial(run, params, source_BT) for name, run in jitted.items()}
    found["one sentence"] = functools.partial(jitted["reordered"], params, one_BT)
    _check({name: jax.device_get(run()) for name, run in found.items()})
    return {name: functools.partial(_finished, run) for name, run in found.items()}


def _quickstart() -> Experiment:
    loaded = config.load([GIN_FILE], ["MODEL_DIR = 'never_written'"])
    return loaded.arguments("gshard_train.inference.infer")["experiment"]


def _endless(params: state.Params) -> state.Params:
    """Sure of each next token, and never of the end: every search goes on to the last position."""
    output_MV = (20 * params["output"]).at[:, EOS_ID].set(0.0)
    return params | {"output": output_MV}


def _jitted(search: Callable[..., Translations], model: state.Model, experiment: Experiment, mesh):
    @jax.jit
    def run(params: state.Params, source_BT: jax.Array) -> Translations:
        with rules_scope(experiment.rules, mesh, varying=VARYING):
            return search(model.merge(params), source_BT)

    return run


def _finished(run: Run) -> Translations:
    return jax.block_until_ready(run())


def _check(found: dict[str, Translations]) -> None:
    """Raises if the ways of keeping differ, or a sentence ended before the last position."""
    expected = found["reordered"]
    for name in ("whole decoder", "flat"):
        np.testing.assert_array_equal(found[name].tokens_BL, expected.tokens_BL, err_msg=name)
        np.testing.assert_allclose(found[name].score_B, expected.score_B, rtol=1e-4)
    np.testing.assert_array_equal(found["one sentence"].tokens_BL[0], expected.tokens_BL[0])
    if not expected.truncated_B.all():
        raise SystemExit("bench_decode.py: some sentences ended early, so rows differ in work")
