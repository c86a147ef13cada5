"""Logical axis names to mesh axes."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe_mesh,
    did_you_mean,
    kind_of,
    mesh_sizes,
    raise_faults,
    report_faults,
    spec_faults,
)

Names = Sequence[str | None]


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which mesh axes split a dimension of a given logical name.

    Attributes:
      pairs: (logical name, mesh axis, tuple of mesh axes, or None for not split), one per name; a
        mapping from names will do.
      optional_axes: Mesh axes that a mesh may lack; a dimension is then not split over them.
      varying: Logical names that may have several sizes within one `rules_scope`.

    Raises:
      ValueError: Something that is no pair; a name with two pairs, of which the second would never
        count (`replace` changes rules).
    """

    pairs: tuple[tuple[str, MeshAxes], ...]  # others are turned into it
    optional_axes: tuple[str, ...] = ("model",)
    varying: tuple[str, ...] = ()

    def __post_init__(self):
        pairs = tuple(self.pairs.items()) if isinstance(self.pairs, Mapping) else tuple(self.pairs)
        raise_faults("Rules", [f"pair {n} {fault}" for n, fault in _malformed(pairs)])
        pairs = tuple((name, _hashable(axes)) for name, axes in pairs)
        object.__setattr__(self, "pairs", pairs)
        for name in ("optional_axes", "varying"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"Rules: {name} is {kind_of(getattr(self, name))}; give a tuple")
        object.__setattr__(self, "optional_axes", tuple(self.optional_axes))
        object.__setattr__(self, "varying", tuple(self.varying))
        report_faults("Rules", _shadowed(pairs) + self.unknown_names("varying", self.varying))

    def replace(self, **mesh_axes: MeshAxes) -> "Rules":
        """These rules with other mesh axes for the names given, and with names that are new."""
        kept = tuple((name, axes) for name, axes in self.pairs if name not in mesh_axes)
        return dataclasses.replace(self, pairs=(*mesh_axes.items(), *kept))

    def mesh_axes(self, name: str | None, mesh: Mesh | AbstractMesh) -> MeshAxes:
        """The mesh axes that split a dimension called `name`; None when nothing does.

        Raises:
          KeyError: No rule has this name.
        """
        if name is None:
            return None
        asked = axes_tuple(self._by_name[name])
        kept = tuple(a for a in asked if a in mesh.shape or a not in self.optional_axes)
        return kept[0] if len(kept) == 1 else kept or None

    def spec(self, names: Names, *, mesh: Mesh | AbstractMesh) -> PartitionSpec:
        """The PartitionSpec of an array whose dimensions have these logical names.

        Raises:
          ValueError: Names without a rule, mesh axes that the mesh lacks, or one used twice.
        """
        if isinstance(names, str):
            raise TypeError(f"Rules.spec: names is {kind_of(names)}; give a tuple")
        faults = self.unknown_names("names", names)
        axes = [] if faults else [self.mesh_axes(name, mesh) for name in names]
        what = f"({', '.join(map(str, names))})"
        raise_faults("Rules.spec", faults or spec_faults(what, [0] * len(axes), axes, mesh.shape))
        return PartitionSpec(*axes)

    def unknown_names(self, what: str, names: Collection[str | None]) -> list[str]:
        """One sentence for each logical name that has no rule."""
        return [
            f"{what}: no rule for logical name '{name}'{did_you_mean(name, self._by_name)} "
            f"(rules: {', '.join(self._by_name) or 'none'})"
            for name in names
            if name is not None and name not in self._by_name
        ]

    def names_faults(self, what: str, shape: Sequence[int], names: Names) -> list[str]:
        """What is wrong with these names for the dimensions of an array of this shape."""
        if len(names) == 1 and isinstance(names[0], tuple | list):
            return [f"{what}: {names[0]!r} is given as one name; give names one by one"]
        if wrong := [name for name in names if not isinstance(name, str | None)]:
            return [f"{what}: logical name {kind_of(name)} is no text" for name in wrong]
        if len(names) == len(shape):
            return self.unknown_names(what, names)
        count = f"{len(shape)} dimension{'s' if len(shape) != 1 else ''}"
        given = f"{len(names)} name{'s' if len(names) != 1 else ''} {tuple(names)}"
        return [f"{what} has {count} but {given}; give one per dimension (None: not split)"]

    def faults(self, mesh: Mesh | AbstractMesh, varying: Collection[str] = ()) -> list[str]:
        """One sentence for each rule that names a mesh axis which this mesh lacks."""
        sizes = mesh_sizes(mesh)
        return [
            f"rule ('{name}', {axes!r}) names mesh axis '{axis}': the mesh has "
            f"{describe_mesh(sizes)}{did_you_mean(axis, sizes)}"
            for name, axes in self.pairs
            for axis in axes_tuple(axes)
            if axis not in sizes and axis not in self.optional_axes
        ] + self.unknown_names("varying", varying)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:  # every annotation asks for it
        return hash((self.pairs, self.optional_axes, self.varying))

    @functools.cached_property
    def _by_name(self) -> dict[str, MeshAxes]:
        by_name: dict[str, MeshAxes] = {}
        for name, axes in self.pairs:
            by_name.setdefault(name, axes)  # the first pair of a name counts
        return by_name


def _hashable(axes: MeshAxes) -> MeshAxes:
    return tuple(axes) if isinstance(axes, list) else axes


def need_rules(who: str, rules: Any) -> None:
    """Raises a TypeError unless these are `Rules`."""
    if not isinstance(rules, Rules):
        raise TypeError(f"{who}: rules is {kind_of(rules)}; give gshard_annotate.Rules(...)")


def _malformed(pairs: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """The number of each pair that is none, and what is wrong with it."""
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            yield number, f"is {kind_of(pair)}; give (logical name, mesh axes)"
        elif not isinstance(pair[0], str):
            yield number, f"names {kind_of(pair[0])}; give the logical name as text"
        elif wrong := [axis for axis in axes_tuple(pair[1]) if not isinstance(axis, str)]:
            yield number, f"has mesh axis {kind_of(wrong[0])}; give the name of a mesh axis"


def _shadowed(pairs: Sequence[tuple[str, MeshAxes]]) -> list[str]:
    """One sentence for each pair that an earlier one of the same name keeps from counting."""
    names = [name for name, _ in pairs]
    firsts = [names.index(name) for name in names]
    return [
        f"pair {at + 1} {pairs[at]!r} never counts: pair {first + 1} {pairs[first]!r} has that "
        f"name too; keep one, or use rules.replace({names[at]}=...)"
        for at, first in enumerate(firsts)
        if first < at
    ]


DEFAULT_RULES = Rules(
    (
        # Activations. Groups are split over data and expert together: over data alone the
        # compiler gathers tokens instead of exchanging them.
        ("batch", ("data", "expert")),
        ("group", ("data", "expert")),
        ("dispatched_group", "data"),
        ("group_token", None),
        ("length", None),
        ("source_length", None),
        ("target_length", None),
        ("capacity", None),
        ("act_embed", None),
        ("act_mlp", "model"),
        ("act_heads", "model"),
        # Parameters.
        ("expert", "expert"),
        ("mlp", "model"),
        ("heads", "model"),
        ("vocab", "model"),
        ("embed", None),
        ("head_dim", None),
        ("layer", None),
        ("router", None),
        ("norm", None),
    ),
    # Layers may group the same tokens in different ways, and differ in experts and hidden widths.
    varying=("group", "dispatched_group", "group_token", "capacity", "expert", "act_mlp"),
)
