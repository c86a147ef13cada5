"""A layout that may be compiled, and what became of one that was."""

import dataclasses
import functools
from collections.abc import Mapping

from gshard_train.experiment import Experiment
from gshard_train.planning.floor import Floor
from gshard_train.precompiling import verdict
from gshard_train.precompiling.job import Result
from gshard_train.precompiling.layout import Layout
from gshard_train.precompiling.verdict import device_memory

# Policies by how much they compute again, each all of what the one before does.
_REMATS = ("none", "save_dispatch", "full")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A layout with what is known of it before it is compiled.

    Attributes:
      layout: what is changed about the gin files; nothing for their own.
      experiment: with the layout applied.
      mesh: size of each axis.
      floor: what it costs at the least.
      own: whether it is the gin files' own.
    """

    layout: Layout
    experiment: Experiment
    mesh: Mapping[str, int]
    floor: Floor
    own: bool = False

    @functools.cached_property
    def fields(self) -> tuple:
        """What layouts differ in: equal for the same program."""
        model = self.experiment.model
        sizes = tuple((axis, size) for axis, size in self.mesh.items() if size > 1)
        return (
            sizes,
            self.experiment.rules.pairs,
            model.num_groups,
            model.dispatch,
            model.pipeline_microbatches,
            model.remat,
            self.experiment.microbatches,
        )

    def keeps_more_than(self, other: "Candidate") -> bool:
        """Whether the other is the same but computes more again: it works more, in less room.

        Nothing is said of other numbers of parts: the sum of gradients takes room of its own, so
        that one part may need less than two.
        """
        *same, remat, parts = self.fields
        *same_of_other, remat_of_other, parts_of_other = other.fields
        return (
            same == same_of_other
            and parts == parts_of_other
            and remat != remat_of_other
            and _within(remat, remat_of_other)
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """What became of a candidate.

    Attributes:
      candidate: which.
      result: of compiling it.
      kept: whether it was compiled by an earlier search.
    """

    candidate: Candidate
    result: Result
    kept: bool = False

    @property
    def bytes(self) -> int | None:
        """The peak on one device; None where nobody knows."""
        facts = self.result.facts
        return device_memory(self.result, facts).peak if facts else None

    @property
    def limit(self) -> int | None:
        """What a device has for programs; None where nobody knows."""
        facts = self.result.facts
        return device_memory(self.result, facts).limit if facts else None

    @property
    def fits(self) -> bool:
        """Whether there is a program, with an estimate of its time, that a device has room for."""
        facts = self.result.facts
        if facts is None or self.seconds is None:
            return False
        return bool(verdict.fits(device_memory(self.result, facts), self.result.fault))

    @property
    def seconds(self) -> float | None:
        """The estimate for a step."""
        report = self.result.report
        return report.cost.step_seconds if report else None

    @property
    def tokens_per_second(self) -> float | None:
        """Source tokens, as the paper counts."""
        facts, seconds = self.result.facts, self.seconds
        return facts.source_tokens / seconds if facts and seconds else None


def _within(remat: object, other: object) -> bool:
    if remat == other:
        return True
    if remat not in _REMATS or other not in _REMATS:
        return False
    return _REMATS.index(remat) < _REMATS.index(other)
