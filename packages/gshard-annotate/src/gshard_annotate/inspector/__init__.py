"""What the compiler made of the annotations.

A claim about sharding is a claim about the compiled program: `expect_collectives` makes it a test,
`inspect` a report that people read.
"""

from typing import TYPE_CHECKING, Any

from gshard_annotate.inspector.collectives import Collective as Collective
from gshard_annotate.inspector.collectives import collectives as collectives
from gshard_annotate.inspector.collectives import expect_collectives as expect_collectives

if TYPE_CHECKING:
    from gshard_annotate.inspector.chips import CHIPS as CHIPS
    from gshard_annotate.inspector.chips import Chip as Chip
    from gshard_annotate.inspector.differences import diff as diff
    from gshard_annotate.inspector.inspecting import inspect as inspect
    from gshard_annotate.inspector.inspecting import inspect_compiled as inspect_compiled
    from gshard_annotate.inspector.inspecting import inspect_lowered as inspect_lowered
    from gshard_annotate.inspector.report import Report as Report

# Loaded when asked for: whoever annotates only does not pay for them.
_MODULES = {
    "CHIPS": "chips",
    "Chip": "chips",
    "Report": "report",
    "diff": "differences",
    "inspect": "inspecting",
    "inspect_compiled": "inspecting",
    "inspect_lowered": "inspecting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
