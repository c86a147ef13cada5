"""Per-device code inside a program that the compiler partitions, and back.

GShard's auto_to_manual and manual_to_auto (arXiv 2006.16668, appendix A.3) as one wrapper: the
function gets one device's part of each argument, and its results are the parts of whole arrays.
JAX's `shard_map` does it; what is added are the checks before tracing, logical names, and meshes of
every kind. Mesh axes that are not made manual stay with the compiler and its annotations.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

from gshard_annotate.manual_entry import ManualEntry
from gshard_annotate.placement import AnyMesh
from gshard_annotate.rules import Rules


def manual(
    fn: Callable[..., Any],
    in_axes: Any,
    out_axes: Any,
    *,
    axes: Collection[str] | None = None,
    rules: Rules | None = None,
    mesh: AnyMesh | None = None,
    check_vma: bool = True,
) -> Callable[..., Any]:
    """`fn` as per-device code, callable with whole arrays.

    How an array is split is a PartitionSpec of mesh axes, or a tuple of logical names that the
    rules turn into one, or None for whole on every device. Arguments that lie otherwise are moved.

    Args:
      fn: From parts of arrays, by position, to parts of arrays; it may use `jax.lax` collectives
        and `halo_exchange` over the manual axes.
      in_axes: How each argument is split: a list or tuple with an entry (or a tree of entries, for
        a tree) per argument; a single PartitionSpec or None counts for all.
      out_axes: How the result is split: an entry, or a tree of entries.
      axes: The mesh axes to make manual; all when left out. The compiler keeps the others: inside
        `fn` they may be annotated, and rules do not split over them.
      rules: What logical names mean, when not as in the scope; outside of any, `DEFAULT_RULES`.
      mesh: The mesh, when it is not that of the scope.
      check_vma: Whether JAX keeps track of what differs between devices. Without it, what wrongly
        counts as the same on all passes, in gradients too.

    Raises:
      ValueError: When called: everything that is wrong with the arguments and `in_axes`, at once;
        a result that `out_axes` does not fit.
    """

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        entry = ManualEntry("manual", rules, axes, mesh, in_axes, out_axes)
        return entry.run(fn, args, check_vma)

    return call
