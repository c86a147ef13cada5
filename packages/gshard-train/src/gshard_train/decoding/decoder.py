"""Decoding any number of sentences in batches of one size, by programs compiled once.

Axes: B batch, T source length, L target length.
"""

import dataclasses
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray

from gshard_annotate import rules_scope
from gshard_train import state
from gshard_train.decode import EOS_ID, VARYING, Sampling, Search, Translations, translate
from gshard_train.decoding.progress import DecodingProgress
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared
from gshard_train.measuring.held_out import Example
from gshard_train.mesh_faults import indivisible
from gshard_train.step import batch_sharding, whole_to_mesh

# Sources are padded to one of few widths, each half of the next: a program each.
LEAST_WIDTH = 16


class Hypothesis(NamedTuple):
    """The translation of one sentence, on the host."""

    tokens: list[int]
    score: float
    truncated: bool


@dataclasses.dataclass(frozen=True)
class Batch:
    """Places of the examples that are decoded together, and the width they are padded to."""

    places: tuple[int, ...]
    width: int


class Decoder:
    """Translates sentences with parameters that may change from call to call.

    Args:
      experiment: gives the rules and the longest source and target.
      prepared: the experiment's mesh and model.
      search: how translations are searched for.
      batch_size: rows of every batch; the last one is filled up with rows that end at once.

    Raises:
      UserError: the devices or the model's groups do not divide `batch_size`.
    """

    def __init__(
        self, experiment: Experiment, prepared: Prepared, search: Search, *, batch_size: int
    ):
        self.search, self.batch_size = search, batch_size
        self._longest = experiment.task_feature_lengths["inputs"]
        self._length = experiment.task_feature_lengths["targets"]
        self._widths = widths(self._longest)
        self._sharding = batch_sharding(experiment.rules, prepared.mesh)
        if fault := _batch_fault(batch_size, prepared, self._sharding):
            raise UserError(fault)
        self._sharding_B = NamedSharding(prepared.mesh, PartitionSpec(*self._sharding.spec[:1]))
        self._state = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
        self._run = self._program(experiment, prepared)

    def decode(
        self,
        params: state.Params,
        examples: Sequence[Example],
        *,
        progress: bool,
        numbers: Sequence[int] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> list[Hypothesis]:
        """A hypothesis for each example, in their order.

        Args:
          params: the model's parameters.
          examples: what to translate.
          progress: whether to show how far it is, on a terminal or in the log.
          numbers: the number of each example in its task, which sampling draws by; counted
            through from 0 by default.
          between: called after each batch; what it raises ends the decoding.
        """
        found: dict[int, Hypothesis] = {}
        with DecodingProgress(len(examples), shown=progress) as shown:
            for batch in self.decode_batches(params, examples, numbers=numbers):
                found.update(batch)
                shown.update(len(batch))
                between()
        return [found[place] for place in range(len(examples))]

    def decode_batches(
        self,
        params: state.Params,
        examples: Sequence[Example],
        *,
        numbers: Sequence[int] | None = None,
        done: Container[int] = (),
    ) -> Iterator[Mapping[int, Hypothesis]]:
        """The hypotheses of one batch after the other, by the examples' places.

        What the batches are depends on the examples alone, so a decoding that goes on after a
        stop computes the same numbers as one that was not stopped.

        Args:
          params: the model's parameters.
          examples: what to translate.
          numbers: as `decode` takes them.
          done: places whose hypotheses are known; a batch of such alone is left out.
        """
        waiting = None
        for batch in self.plan(examples):
            if all(place in done for place in batch.places):
                continue
            started = self._start(params, examples, batch, numbers or range(len(examples)))
            if waiting is not None:
                yield _fetch(*waiting)
            # The next batch is on its way to the devices while this one is computed.
            waiting = (batch, started)
        if waiting is not None:
            yield _fetch(*waiting)

    def plan(self, examples: Sequence[Example]) -> list[Batch]:
        """Batches of like length, so that short sentences do not wait for long ones.

        Raises:
          UserError: an example is longer than the longest source.
        """
        sizes = [len(example.tokens_T) for example in examples]
        if long := [place for place, size in enumerate(sizes) if size > self._longest]:
            raise UserError(
                f"{len(long)} sentences are longer than TASK_FEATURE_LENGTHS['inputs']="
                f"{self._longest}, such as number {long[0]} with {sizes[long[0]]} tokens; "
                "raise it or trim them"
            )
        # The longest first: what does not fit into memory shows at once, time left is not
        # promised too short, and the batch that is not full has the shortest sentences.
        order = sorted(range(len(examples)), key=lambda place: -sizes[place])
        chunks = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return [Batch(tuple(places), self._width(sizes[places[0]])) for places in chunks]

    def compile(self) -> jax.stages.Compiled:
        """The program for the longest sources, without decoding anything."""
        return self.lower().compile()

    def lower(self) -> jax.stages.Lowered:
        """What is compiled for the longest sources; the devices need not be there."""
        source = jax.ShapeDtypeStruct(
            (self.batch_size, self._longest), np.int32, sharding=self._sharding
        )
        numbers = jax.ShapeDtypeStruct((self.batch_size,), np.uint32, sharding=self._sharding_B)
        params = state.abstract_state(*self._state).params
        return self._run.lower(params, source, numbers)

    def _width(self, size: int) -> int:
        return next(width for width in self._widths if width >= size)

    def _start(
        self,
        params: state.Params,
        examples: Sequence[Example],
        batch: Batch,
        numbers: Sequence[int],
    ) -> Translations:
        source_BT = np.zeros((self.batch_size, batch.width), np.int32)
        number_B = np.zeros((self.batch_size,), np.uint32)
        for row, place in enumerate(batch.places):
            tokens_T = examples[place].tokens_T
            source_BT[row, : len(tokens_T)] = tokens_T
            number_B[row] = numbers[place]
        return self._run(
            params,
            whole_to_mesh(source_BT, self._sharding),
            whole_to_mesh(number_B, self._sharding_B),
        )

    def _program(self, experiment: Experiment, prepared: Prepared):
        # Whole on every process, so that each can read all of it.
        replicated = NamedSharding(prepared.mesh, PartitionSpec())

        def run(
            params: state.Params, source_BT: Int[Array, "B T"], number_B: Int[Array, " B"]
        ) -> Translations:
            with rules_scope(experiment.rules, prepared.mesh, varying=VARYING):
                return translate(
                    prepared.model.merge(params),
                    source_BT,
                    length=self._length,
                    search=self.search,
                    key_B=keys(self.search, number_B),
                )

        return jax.jit(run, out_shardings=replicated)


def keys(search: Search, number_B: Int[Array, " B"]) -> PRNGKeyArray | None:
    """A random key for each sentence, by its number; None where nothing is drawn."""
    if not isinstance(search, Sampling):
        return None
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(search.seed), number_B)


def widths(longest: int) -> list[int]:
    """The widths that sources are padded to, ascending: the longest, its half and so on.

    Half the width halves what each step reads of the source; more widths would compile more
    programs than they save.
    """
    found = [longest]
    while found[-1] > LEAST_WIDTH:
        found.append(math.ceil(found[-1] / 2))
    return found[::-1]


def _batch_fault(batch_size: int, prepared: Prepared, sharding: NamedSharding) -> str:
    names = sharding.spec[0] or ()
    axes = (names,) if isinstance(names, str) else names
    shards = math.prod(prepared.mesh.shape[axis] for axis in axes)
    config = prepared.model.config
    parts = math.lcm(shards, config.num_groups if config.num_experts else 1)
    if batch_size >= 1 and batch_size % parts == 0:
        return ""
    groups = f" and num_groups={config.num_groups} together" if config.num_experts else ""
    what = f"mesh ({shards} parts){groups}"
    return indivisible("decoding's batch_size", batch_size, parts, what)


def _fetch(batch: Batch, started: Translations) -> Mapping[int, Hypothesis]:
    rows = zip(*jax.device_get(started), strict=True)
    return {
        place: Hypothesis([int(t) for t in tokens if t > EOS_ID], float(score), bool(cut))
        for place, (tokens, score, cut) in zip(batch.places, rows, strict=False)
    }
