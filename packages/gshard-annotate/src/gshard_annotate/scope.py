"""Rules and mesh for everything inside a `with` block, and the sizes that logical names have there.

A logical name means one size within a scope: the first use fixes it, an annotation that gives it
another is refused. That catches swapped dimensions, which compile and train all the same.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Collection, Iterator, Sequence

from jax.sharding import AbstractMesh, Mesh

from gshard_annotate.checks import kind_of, report_faults
from gshard_annotate.rules import Names, Rules, need_rules
from gshard_annotate.source import Line, calling_line


@dataclasses.dataclass(frozen=True)
class Scope:
    """Rules and mesh that annotations use where none is passed.

    Attributes:
      rules: What logical names mean.
      mesh: Where arrays go.
      varying: Logical names that may have several sizes.
    """

    rules: Rules
    mesh: Mesh | AbstractMesh
    varying: frozenset[str] = frozenset()
    _sizes: dict[str, tuple[int, Line]] = dataclasses.field(default_factory=dict, repr=False)

    def size_faults(self, names: Names, shape: Sequence[int]) -> list[str]:
        """One sentence per name that had another size before; fixes the size of new names."""
        faults = []
        for name, size in zip(names, shape, strict=False):
            if name is None or name in self.varying:
                continue
            known = self._sizes.get(name)
            if known is None:
                self._sizes[name] = size, calling_line()
            elif known[0] != size:
                faults.append(self._size_fault(name, size, known))
        return faults

    def _size_fault(self, name: str, size: int, known: tuple[int, Line]) -> str:
        return (
            f"'{name}' is {known[0]} at {known[1]} and {size} at {calling_line()}: "
            "are the dimensions swapped? If it may vary, enter "
            f"`rules_scope(rules, mesh, varying=('{name}',))`"
        )


_SCOPE: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("scope", default=None)

# What JAX says when an operation meets a partial sum that it cannot carry.
_PARTIAL_ERRORS = ("unreduced", "reduced along the same axes")


@contextlib.contextmanager
def rules_scope(
    rules: Rules, mesh: Mesh | AbstractMesh, *, varying: Collection[str] = ()
) -> Iterator[Scope]:
    """Gives `annotate` and its siblings these rules and this mesh inside the `with` block.

    Open it inside the function that is jitted: JAX reuses a traced function without looking at
    the scope, so a scope around the call does not reach a program traced under another one. The
    block also holds logical names to one size each, through scan, vmap, remat and inner jits.

    Args:
      rules: What logical names mean.
      mesh: Where arrays go.
      varying: Logical names that may have several sizes inside, beside `rules.varying`.

    Raises:
      ValueError: Rules that name mesh axes which the mesh lacks; names in `varying` without a rule.
    """
    need_rules("rules_scope", rules)
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise TypeError(
            f"rules_scope: mesh is {kind_of(mesh)}; give a Mesh, as make_mesh makes one"
        )
    if isinstance(varying, str):
        raise TypeError(f"rules_scope: varying is {kind_of(varying)}; give a tuple")
    report_faults("rules_scope", rules.faults(mesh, varying))
    scope = Scope(rules, mesh, frozenset(varying).union(rules.varying))
    token = _SCOPE.set(scope)
    try:
        yield scope
    except Exception as error:
        if any(words in str(error) for words in _PARTIAL_ERRORS):
            error.add_note(
                "gshard_annotate: a partial sum passes through linear operations only; place its "
                "reduction before this one, with replicate(x) or split(x, dim, mesh_axis)"
            )
        raise
    finally:
        _SCOPE.reset(token)


def current_scope() -> Scope | None:
    """The innermost `rules_scope`, or None outside of all."""
    return _SCOPE.get()
