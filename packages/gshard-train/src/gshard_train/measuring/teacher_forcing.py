"""What a model says of given targets: losses of whole sentences, and where their tokens go.

Axes: B batch, T source length, L target length, X examples, N labels, E experts.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from tqdm import tqdm

from gshard_annotate import annotate, rules_scope
from gshard_train import state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.loss import cross_entropy
from gshard_train.measuring.held_out import Example
from gshard_train.models.transformer import PAD_ID
from gshard_train.step import batch_sharding, whole_to_mesh

NO_LABEL = -1
_LOG_SECONDS = 10


class Scores(NamedTuple):
    """Sums over the target tokens of each example, and over all examples of a label."""

    nats_X: Float[np.ndarray, " X"]  # -log p of the whole target
    correct_X: Int[np.ndarray, " X"]  # tokens to which the model gives the highest probability
    tokens_X: Int[np.ndarray, " X"]
    load_NE: Float[np.ndarray, "layers N E"] | None  # choices that got a slot; None where dense


class TeacherForcing:
    """Scores examples in batches of one size, by one program.

    Args:
      experiment: gives the rules and the longest source and target.
      prepared: the experiment's mesh and model, for batches of `batch_size`.
      batch_size: rows of every batch; the last one is filled up with padding, which counts nowhere.
      num_labels: how many labels examples have.
    """

    def __init__(
        self, experiment: Experiment, prepared: Prepared, *, batch_size: int, num_labels: int
    ):
        self._lengths = experiment.task_feature_lengths
        self._batch_size, self._num_labels = batch_size, num_labels
        self._sharding = batch_sharding(experiment.rules, prepared.mesh)
        self._abstract = state.abstract_state(
            prepared.model, prepared.optimizer, experiment.rules, prepared.mesh
        ).params
        self._everywhere = NamedSharding(prepared.mesh, PartitionSpec())
        self._load = self._load_shape(prepared)
        # Whole on every process, so that each can read all of it.
        self._run = jax.jit(
            functools.partial(_score, experiment, prepared, num_labels),
            out_shardings=self._everywhere,
        )

    def score(
        self,
        params: state.Params,
        examples: Sequence[Example],
        labels: Sequence[int],
        *,
        progress: bool,
        between: Callable[[], None] = lambda: None,
    ) -> Scores:
        """The scores of examples, whose targets are in their rows.

        Args:
          params: the model's parameters.
          examples: what is scored.
          labels: of each example.
          progress: whether to show a bar.
          between: called before each batch; what it raises ends the scoring.
        """
        load, waiting, rows = self._no_load(), None, []
        told = time.monotonic()
        starts = range(0, len(examples), self._batch_size)
        for start in tqdm(starts, unit=" batches", disable=not progress or None, leave=False):
            if progress and time.monotonic() - told > _LOG_SECONDS:
                logging.info("scored %d of %d examples", start, len(examples))
                told = time.monotonic()
            between()
            chosen = slice(start, start + self._batch_size)
            batch = self._batch(examples[chosen], labels[chosen])
            sums, load = self._run(params, batch, load)
            # The next batch is on its way to the devices while this one is computed.
            rows += [] if waiting is None else [jax.device_get(waiting)]
            waiting = sums
        rows += [] if waiting is None else [jax.device_get(waiting)]
        nats_X, correct_X, tokens_X = (
            np.concatenate(parts)[: len(examples)] for parts in zip(*rows, strict=True)
        )
        table = None if load is None else np.asarray(jax.device_get(load), np.float64)
        return Scores(nats_X.astype(np.float64), correct_X, tokens_X, table)

    def compile(self) -> jax.stages.Compiled:
        """The program, without scoring anything."""
        return self.lower().compile()

    def lower(self) -> jax.stages.Lowered:
        """What is compiled; the devices need not be there."""
        shapes = {"source": self._shape("inputs"), "targets": self._shape("targets")}
        shapes["label"] = (self._batch_size, 1)
        batch = {
            name: jax.ShapeDtypeStruct(shape, np.int32, sharding=self._sharding)
            for name, shape in shapes.items()
        }
        return self._run.lower(self._abstract, batch, self._load)

    def _batch(self, examples: Sequence[Example], labels: Sequence[int]) -> dict[str, jax.Array]:
        rows = {
            "source": _padded((e.tokens_T for e in examples), self._shape("inputs")),
            "targets": _padded((e.row["targets"] for e in examples), self._shape("targets")),
            # Beside each other as the rows of a batch are, though one number long.
            "label": np.full((self._batch_size, 1), NO_LABEL, np.int32),
        }
        rows["label"][: len(labels), 0] = labels
        return {name: whole_to_mesh(array, self._sharding) for name, array in rows.items()}

    def _shape(self, feature: str) -> tuple[int, int]:
        return self._batch_size, self._lengths[feature]

    def _load_shape(self, prepared: Prepared) -> jax.ShapeDtypeStruct | None:
        config = prepared.model.config
        if not config.num_experts:
            return None
        layers = (config.num_encoder_layers + config.num_decoder_layers) // 2
        shape = (layers, self._num_labels, config.num_experts)
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=self._everywhere)

    def _no_load(self) -> jax.Array | None:
        if self._load is None:
            return None
        return whole_to_mesh(np.zeros(self._load.shape, np.float32), self._everywhere)


def _score(
    experiment: Experiment,
    prepared: Prepared,
    num_labels: int,
    params: state.Params,
    batch: dict[str, Int[Array, "B _"]],
    load_NE: Float[Array, "layers N E"] | None,
) -> tuple[Any, Float[Array, "layers N E"] | None]:
    """Sums of each row, and the load with that of these rows added."""
    with rules_scope(experiment.rules, prepared.mesh):
        targets_BL = batch["targets"]
        weights_BL = annotate(targets_BL != PAD_ID, "batch", "target_length")
        inputs_BL = jnp.pad(targets_BL, ((0, 0), (1, 0)))[:, :-1]
        logits_BLV, output = prepared.model.merge(params)(
            batch["source"],
            inputs_BL,
            weights_BL,
            labels_B=batch["label"][:, 0],
            num_labels=num_labels,
        )
        entropy = cross_entropy(logits_BLV, targets_BL, 0.0)
        nats_B = jnp.where(weights_BL, entropy.plain_BL, 0.0).sum(1)
        correct_B = (weights_BL & entropy.correct_BL).sum(1)
        if load_NE is not None and output is not None and output.by_label is not None:
            load_NE += output.by_label.load_NE
        return (nats_B, correct_B, weights_BL.sum(1)), load_NE


def _padded(rows: Iterator[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    array = np.full(shape, PAD_ID, np.int32)
    for place, tokens in enumerate(rows):
        array[place, : len(tokens)] = tokens
    return array
