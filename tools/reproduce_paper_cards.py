"""What a row says of a program: its cost card, whether it fits, how it lies on the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

import paper_figures
from gshard_train import config
from gshard_train.experiment import Experiment
from gshard_train.planning.meshes import rules_name
from gshard_train.precompiling.card import CostCard, cost_card
from gshard_train.precompiling.job import Job
from reproduce_paper_programs import Compiled

_RUN = "gshard_train/configs/runs/train.gin"
_UNUSED = ("MODEL_DIR = 'none'", "MIXTURE_OR_TASK_NAME = 'none'", "TRAIN_STEPS = 1")
LAYOUT = (
    "layout: mesh axes, and the rules of our file where they are not the paper's, which keep a "
    "copy of everything but experts on each core: fsdp splits parameters over all cores, "
    "dense_split what is no expert over expert."
)
_PAPERS_RULES = "gshard"

Found = Mapping[Job, Compiled]
Key = TypeVar("Key")


class Known(NamedTuple):
    """What is known of a program.

    Attributes:
      card: None where there is none.
      verdict: whether it fits, in few words, or why there is no card.
      layout: mesh and rules.
    """

    card: CostCard | None
    verdict: str
    layout: str


def known(
    found: Found, jobs: Mapping[Key, Job], tokens: Mapping[Key, float] | None = None
) -> Iterator[tuple[Key, Job, Known]]:
    """What is known of those of the jobs that were found, for trainings of so many tokens."""
    for key, job in jobs.items():
        if job in found:
            yield key, job, _known(found[job], (tokens or {}).get(key, paper_figures.TOKENS))


def experiment_of(job: Job) -> Experiment:
    """The experiment that a job compiles."""
    loaded = config.load([*job.gin_files, _RUN], [*_UNUSED, *job.gin_bindings])
    return loaded.arguments("gshard_train.training.train")["experiment"]


def _known(made: Compiled, tokens: float) -> Known:
    facts, fault = made.result.facts, made.result.fault
    layout = _layout(made.result.job, facts.mesh if facts else {})
    if facts is None or (fault is not None and fault.kind != "too large"):
        said = fault.message.partition("\n")[0] if fault else "nothing known"
        return Known(None, f"{fault.kind}: {said}" if fault else said, layout)
    card = cost_card(made.result, tokens=tokens)
    return Known(card, card.verdict.partition(":")[0], layout)


def _layout(job: Job, mesh: Mapping[str, int]) -> str:
    rules = rules_name(experiment_of(job)) or "own rules"
    sizes = [f"{axis} {size}" for axis, size in mesh.items() if size > 1]
    return ", ".join([" x ".join(sizes)] * bool(sizes) + [rules] * (rules != _PAPERS_RULES))
