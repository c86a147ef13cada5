"""GShard's sharding annotations for JAX: say which dimension is split, XLA does the rest."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gshard_annotate.annotate import annotate as annotate
from gshard_annotate.annotate import mesh_split as mesh_split
from gshard_annotate.annotate import replicate as replicate
from gshard_annotate.annotate import split as split
from gshard_annotate.assignment import shard as shard
from gshard_annotate.checks import AnnotationWarning as AnnotationWarning
from gshard_annotate.checks import checks as checks
from gshard_annotate.halo import halo_exchange as halo_exchange
from gshard_annotate.inspector.collectives import Collective as Collective
from gshard_annotate.inspector.collectives import collectives as collectives
from gshard_annotate.inspector.collectives import expect_collectives as expect_collectives
from gshard_annotate.manual import manual as manual
from gshard_annotate.mesh import make_mesh as make_mesh
from gshard_annotate.mesh import topology_devices as topology_devices
from gshard_annotate.padded import Padded as Padded
from gshard_annotate.partial import partial as partial
from gshard_annotate.rules import DEFAULT_RULES as DEFAULT_RULES
from gshard_annotate.rules import Rules as Rules
from gshard_annotate.scope import rules_scope as rules_scope
from gshard_annotate.summands import sum_partials as sum_partials
from gshard_annotate.trees import annotate_tree as annotate_tree
from gshard_annotate.trees import names_by_path as names_by_path
from gshard_annotate.trees import tree_shardings as tree_shardings
from gshard_annotate.trees import tree_specs as tree_specs
from gshard_annotate.uneven import pad_to_split as pad_to_split

if TYPE_CHECKING:
    from gshard_annotate.inspector.differences import diff as diff
    from gshard_annotate.inspector.inspecting import inspect as inspect
    from gshard_annotate.inspector.report import Report as Report

# Loaded when asked for: whoever annotates only does not wait for them.
_LATER = {"Report": "report", "diff": "differences", "inspect": "inspecting"}

__version__ = version("gshard-annotate")


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.inspector.{_LATER[name]}"), name)
