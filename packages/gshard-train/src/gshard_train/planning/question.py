"""What is searched: the gin files' own layout, and all others that the checks let through."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from gshard_train.errors import UserError
from gshard_train.experiment import Experiment
from gshard_train.planning.floor import Floors
from gshard_train.planning.machine import Machine
from gshard_train.planning.row import Candidate
from gshard_train.planning.space import Space, candidates
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout


class Others(NamedTuple):
    """The layouts beside the gin files' own, and how many were refused for which reason."""

    candidates: list[Candidate]
    refused: Mapping[str, int]


def own_layout(
    job: Job, experiment: Experiment, described: Result, floors: Floors, machine: Machine
) -> Candidate | None:
    """The layout of the gin files; None where the checks refuse it."""
    if described.facts is None:
        return None
    mesh = described.facts.mesh
    floor = floors.of(experiment, mesh, machine.chip)
    return Candidate(layout=job.layout, experiment=experiment, mesh=mesh, floor=floor, own=True)


def space_of(job: Job, described: Result, machine: Machine, vary: tuple[str, ...]) -> Space:
    """Where is searched.

    Raises:
      UserError: the gin files' own mesh does not fit the machine, and is not to vary.
    """
    facts, fault = described.facts, described.fault
    if facts is None and "mesh" not in vary:
        raise UserError(
            *(fault.message if fault else "").split("\n"),
            "so there is no mesh to begin with, and --vary lacks mesh; mend it, or add mesh",
        )
    return Space(
        num_devices=machine.num_devices,
        num_slices=job.num_slices,
        vary=vary,
        own_mesh=facts.mesh if facts else None,
    )


def other_layouts(
    job: Job, experiment: Experiment, space: Space, floors: Floors, machine: Machine
) -> Others:
    """Every layout but the gin files' own that can work. It takes seconds.

    Args:
      job: whose layout the others change.
      experiment: with the job's layout.
      space: where is searched.
      floors: of the experiment's layouts.
      machine: what they are for.
    """
    found = candidates(experiment, space)
    refused, others = collections.Counter(found.refused), []
    for layout, applied in found.items():
        mesh = layout.mesh or space.own_mesh or {}
        try:
            floor = floors.of(applied, mesh, machine.chip)
        except ValueError:
            refused["a parameter cannot be divided"] += 1
            continue
        layout = _over(job.layout, layout)
        others.append(Candidate(layout=layout, experiment=applied, mesh=mesh, floor=floor))
    return Others(others, refused)


def _over(own: Layout, layout: Layout) -> Layout:
    """A layout with what it leaves open as the other has it."""
    given = {field.name: getattr(layout, field.name) for field in dataclasses.fields(Layout)}
    return dataclasses.replace(own, **{n: each for n, each in given.items() if each is not None})
