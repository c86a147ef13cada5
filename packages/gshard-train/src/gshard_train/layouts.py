"""How models lie on meshes: rules for the logical names of dimensions, to bind as Experiment.rules.

Mesh axes: data and expert split the batch, expert also the experts (in `dense_split` both do); of
the others a mesh may have any. `model` splits heads, hidden widths and vocabularies (Megatron-LM,
arXiv 1909.08053); `replica` goes from slice to slice and splits only the batch, so that between
slices gradients and a few sums are added up and nothing else crosses; `stage` splits the stack of
layers into a pipeline (GSPMD, arXiv 2105.04663, 3.3).
"""

from gshard_annotate import DEFAULT_RULES, Rules
from gshard_annotate.checks import MeshAxes

OPTIONAL_AXES = ("model", "replica", "stage")


def gshard() -> Rules:
    """The paper's: experts split, everything else a copy on every device (the default)."""
    return _rules()


def tensor_parallel() -> Rules:
    """The paper's, with a `model` axis that the mesh must have."""
    return _rules(needed="model")


def several_slices() -> Rules:
    """The paper's, with a `replica` axis that the mesh must have."""
    return _rules(needed="replica")


def pipeline() -> Rules:
    """The paper's, with a `stage` axis that the mesh must have."""
    return _rules(needed="stage")


def fsdp() -> Rules:
    """Parameters and optimizer state fully sharded (ZeRO, arXiv 1910.02054, stage 3).

    The model width of every parameter is split over data and expert, that of experts, which are
    split over expert already, over data. A layer's parameters are gathered when it runs, and their
    gradients scattered.
    """
    return _rules(embed=("data", "expert"), expert_embed="data")


def dense_split() -> Rules:
    """Experts on all devices, and what is no expert split over the axis `expert` (as `fsdp`).

    For models whose copy of what is no expert does not fit, on more devices than the model width
    can be split over: `data` times `expert` divides the experts, `expert` the model width.
    """
    return _rules(
        expert=("data", "expert"), dispatched_group="replica", embed="expert", expert_embed=None
    )


def _rules(*, needed: str | None = None, **mesh_axes: MeshAxes) -> Rules:
    """The default rules with the axes of several slices and of a pipeline, then with others."""
    several = {
        "batch": ("replica", "data", "expert"),
        "group": ("replica", "data", "expert"),
        "dispatched_group": ("replica", "data"),
        "layer": "stage",
    }
    return Rules(
        DEFAULT_RULES.replace(**several).replace(**mesh_axes).pairs,
        optional_axes=tuple(axis for axis in OPTIONAL_AXES if axis != needed),
        varying=DEFAULT_RULES.varying,
    )
