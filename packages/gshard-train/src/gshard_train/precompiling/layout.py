"""How a model is laid out on a machine: what may be changed about it for another machine."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from gshard_annotate import Rules
from gshard_moe.layer import Dispatch
from gshard_train import layouts
from gshard_train.models.remat import Remat

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment

RulesName = Literal[
    "gshard", "dense_split", "fsdp", "tensor_parallel", "several_slices", "pipeline"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What of an experiment belongs to the machine; None leaves what the gin files say.

    Attributes:
      mesh: size of each mesh axis, in order.
      rules: the function of `gshard_train.layouts` that makes the rules.
      num_groups: groups for routing.
      remat: what is computed again in the backward pass.
      microbatches: parts of a batch whose gradients are added up.
      pipeline_microbatches: parts of a batch in the pipeline, where there is a `stage` axis.
      dispatch: how tokens get to their slots.
      slices: with `mesh`, on machines of several slices: the part of an axis that goes from slice
        to slice.
    """

    mesh: Mapping[str, int] | None = None
    rules: RulesName | None = None
    num_groups: int | None = None
    remat: Remat | None = None
    microbatches: int | None = None
    pipeline_microbatches: int | None = None
    dispatch: Dispatch | None = None
    slices: Mapping[str, int] | None = None

    def __hash__(self) -> int:
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return hash(tuple(tuple(f.items()) if isinstance(f, Mapping) else f for f in fields))

    def applied(self, experiment: "Experiment") -> "Experiment":
        """The experiment with what is not None changed; its `make_mesh` still takes `devices`.

        Raises:
          ValueError: the model cannot be so.
        """
        changed: dict[str, Any] = {}
        of_model = ("num_groups", "remat", "pipeline_microbatches", "dispatch")
        if model := {n: value for n in of_model if (value := getattr(self, n)) is not None}:
            changed["model"] = dataclasses.replace(experiment.model, **model)
        if self.mesh is not None:
            over = {} if self.slices is None else {"slices": dict(self.slices)}
            axes = dict(self.mesh)
            changed["make_mesh"] = functools.partial(experiment.make_mesh, axes=axes, **over)
        if self.rules is not None:
            changed["rules"] = _rules(self.rules)
        if self.microbatches is not None:
            changed["microbatches"] = self.microbatches
        return dataclasses.replace(experiment, **changed)


@functools.cache
def _rules(name: RulesName) -> Rules:
    """Made once: a search applies thousands of layouts."""
    return getattr(layouts, name)()
