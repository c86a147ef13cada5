"""What happens when per-device code is entered: which axes, who gets which part, what is wrong."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    axes_size,
    axes_tuple,
    describe,
    describe_mesh,
    did_you_mean,
    mesh_sizes,
    raise_faults,
    spec_faults,
)
from gshard_annotate.placement import AnyMesh, find_mesh, need_set_mesh
from gshard_annotate.rules import DEFAULT_RULES, Rules
from gshard_annotate.scope import current_scope, rules_scope


class ManualEntry:
    """One call of per-device code: its mesh, its manual axes, and how arrays are split over them.

    An entry says how one array is split: a PartitionSpec, a tuple of logical names, or None.
    """

    def __init__(
        self,
        who: str,
        rules: Rules | None,
        axes: Collection[str] | None,
        mesh: AnyMesh | None,
        in_axes: Any,
        out_axes: Any,
    ):
        self.who, self.in_axes, self.out_axes = who, in_axes, out_axes
        scope = current_scope()
        self.rules = rules or (scope.rules if scope else DEFAULT_RULES)
        asked = None if axes is None else axes_tuple(axes if isinstance(axes, str) else tuple(axes))
        found = find_mesh(who, mesh)
        self.mesh = self._one_device(asked or ()) if found is None else found
        kinds = zip(self.mesh.axis_names, self.mesh.axis_types, strict=True)
        self.free = tuple(axis for axis, kind in kinds if kind != AxisType.Manual)
        self.axes = self.free if asked is None else tuple(dict.fromkeys(asked))

    def run(self, fn: Callable[..., Any], args: Sequence[Any], check_vma: bool = True) -> Any:
        """The result of `fn` on the parts of `args`, as whole arrays.

        Raises:
          ValueError: Everything that is wrong with the arguments, at once; then, with the result.
        """
        raise_faults(self.who, self._axes_faults())
        arrays = tuple(jax.tree.map(_as_array, arg) for arg in args)
        specs = self._in_specs(fn, arrays)
        out_specs = jax.tree.map(self._out_spec, self.out_axes, is_leaf=_is_entry)

        @functools.wraps(fn)
        def checked(*parts: Any) -> Any:
            with self._scope_inside():
                result = fn(*parts)
            raise_faults(self.who, self._out_faults(result, check_vma))
            return result

        return jax.shard_map(
            checked,
            mesh=self.mesh if isinstance(self.mesh, Mesh) else None,
            in_specs=specs,
            out_specs=out_specs,
            axis_names=set(self.axes),
            check_vma=check_vma,
        )(*jax.tree.map(self._move, arrays, specs))

    def _one_device(self, axes: Sequence[str]) -> Mesh:
        """A mesh of one device with every axis that is named anywhere."""
        named = {axis for _, each in self.rules.pairs for axis in axes_tuple(each)}
        for entry in jax.tree.leaves((self.in_axes, self.out_axes), is_leaf=_is_entry):
            if isinstance(entry, PartitionSpec):
                named.update(axis for each in entry for axis in axes_tuple(each))
        names = tuple(sorted(named.union(axes)))
        ones, kinds = (1,) * len(names), (AxisType.Auto,) * len(names)
        return jax.make_mesh(ones, names, axis_types=kinds, devices=jax.devices()[:1])

    def _axes_faults(self) -> list[str]:
        sizes = mesh_sizes(self.mesh)
        unknown = [
            f"there is no mesh axis '{axis}' to make manual: the mesh has {describe_mesh(sizes)}"
            f"{did_you_mean(axis, sizes)}"
            for axis in self.axes
            if axis not in sizes
        ]
        again = [
            f"mesh axis '{axis}' is manual here already; name others in axes"
            for axis in self.axes
            if axis in sizes and axis not in self.free
        ]
        return unknown + again if self.axes else ["no mesh axis is left to make manual"]

    @contextlib.contextmanager
    def _scope_inside(self) -> Iterator[None]:
        """Names as the compiler's axes are concerned; their sizes are those of parts."""
        if (scope := current_scope()) is None:
            yield
            return
        left = tuple(
            (name, tuple(axis for axis in axes_tuple(axes) if axis not in self.axes))
            for name, axes in scope.rules.pairs
        )
        rules = dataclasses.replace(scope.rules, pairs=left)
        with rules_scope(rules, scope.mesh, varying=scope.varying):
            yield

    def _in_specs(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with the PartitionSpec of every array in its place."""
        one_for_all = _is_entry(self.in_axes)
        entries = [self.in_axes] * len(args) if one_for_all else list(self.in_axes)
        if len(entries) != len(args):
            raise ValueError(
                f"{self.who}: in_axes has {len(entries)} entries, but {len(args)} arguments are "
                "given; give one per argument"
            )
        names = _argument_names(fn, len(args))
        faults, specs = [], []
        paths, treedef = jax.tree_util.tree_flatten_with_path(args)
        spread = self._spread("in_axes", "arguments", entries, list(args))
        for (path, leaf), entry in zip(paths, spread, strict=True):
            what = f"{path_name(names[path[0].idx], path[1:])} {describe(leaf)}"
            found, spec = self._meaning(what, leaf.shape, entry)
            faults += found
            specs.append(spec)
        raise_faults(self.who, faults)
        return treedef.unflatten(specs)

    def _spread(self, given: str, of: str, entries: Any, tree: Any) -> list[Any]:
        """The entry of each array of a tree."""
        try:
            full = jax.tree.broadcast(entries, tree, is_leaf=_is_entry)
        except ValueError as error:
            raise ValueError(
                f"{self.who}: {given} does not have the structure of the {of} ({error}); give an "
                "entry for each array, or one for all of a tree"
            ) from error
        return jax.tree.leaves(full, is_leaf=_is_entry)

    def _meaning(
        self, what: str, shape: Sequence[int], entry: Any, *, sized: bool = True
    ) -> tuple[list[str], PartitionSpec]:
        """What is wrong with splitting an array so, and the PartitionSpec to do it."""
        if _is_names(entry):
            if faults := self.rules.names_faults(what, shape, entry):
                return faults, PartitionSpec()
            entry = PartitionSpec(*map(self._manual_axes, entry))
        if entry is not None and not isinstance(entry, PartitionSpec):
            wanted = "give a PartitionSpec, a tuple of logical names, or None"
            return [f"{what} cannot be split as {entry!r}; {wanted}"], PartitionSpec()
        spec = entry or PartitionSpec()
        if len(spec) > len(shape):
            entries = f"{spec} has {len(spec)} entries"
            return [f"{what} has {len(shape)} dimensions, but {entries}; give one each"], spec
        kept = self._free_axes_faults(what, spec)
        known = [tuple(a for a in axes_tuple(each) if a not in kept) for each in spec]
        shape = shape if sized else [0] * len(shape)
        faults = spec_faults(what, shape, known, mesh_sizes(self.mesh))
        return faults + list(kept.values()), spec

    def _manual_axes(self, name: str | None) -> tuple[str, ...]:
        over = axes_tuple(self.rules.mesh_axes(name, self.mesh))
        return tuple(axis for axis in over if axis in self.axes)

    def _free_axes_faults(self, what: str, spec: PartitionSpec) -> dict[str, str]:
        """A fault for each mesh axis that is there, but not to be made manual."""
        sizes = mesh_sizes(self.mesh)
        return {
            axis: f"dimension {dim} of {what} cannot be split over mesh axis '{axis}': axes to be "
            f"manual are {self.axes}; add it to them, or leave it to annotations"
            for dim, each in enumerate(spec)
            for axis in axes_tuple(each)
            if axis in sizes and axis not in self.axes
        }

    def _move(self, x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """`x` as Explicit axes demand: split by the manual ones as asked, by others as it was."""
        if AxisType.Explicit not in self.mesh.axis_types:
            return x
        need_set_mesh(self.who, x, self.mesh)
        now = jax.typeof(x).sharding.spec
        over = []
        for dim in range(x.ndim):
            asked = axes_tuple(spec[dim]) if dim < len(spec) else ()
            kept = axes_tuple(now[dim]) if dim < len(now) else ()
            both = asked + tuple(axis for axis in kept if axis not in self.axes)
            fits = x.shape[dim] % axes_size(both, mesh_sizes(self.mesh)) == 0
            over.append(both if fits else asked)
        where = PartitionSpec(*over)
        known = isinstance(self.mesh, Mesh)
        return jax.sharding.reshard(x, NamedSharding(self.mesh, where) if known else where)

    def _out_spec(self, entry: Any) -> PartitionSpec:
        # Of any rank and size: the result is not known yet.
        rank = len(entry) if _is_names(entry) or isinstance(entry, PartitionSpec) else 0
        faults, spec = self._meaning("the result", [0] * rank, entry)
        raise_faults(self.who, faults)
        return spec

    def _out_faults(self, result: Any, check_vma: bool) -> list[str]:
        faults = []
        paths, _ = jax.tree_util.tree_flatten_with_path(result)
        spread = self._spread("out_axes", "result", self.out_axes, result)
        for (path, y), entry in zip(paths, spread, strict=True):
            y = _as_array(y)
            what = f"{path_name('the result', path)} {describe(y)}"
            found, spec = self._meaning(what, y.shape, entry, sized=False)
            faults += found
            if check_vma and not found:
                faults += self._differing_faults(what, y, spec)
        return faults

    def _differing_faults(self, what: str, y: jax.Array, spec: PartitionSpec) -> list[str]:
        over = {axis for each in spec for axis in axes_tuple(each)}
        return [
            f"{what} may differ between the devices of mesh axis '{axis}', but out_axes says it is "
            "the same on all; reduce it with jax.lax.psum or pmean, or split a dimension over "
            f"'{axis}'"
            for axis in self.axes
            if axis in varying_axes(y) and axis not in over
        ]


def path_name(name: str, path: Any) -> str:
    """An array of a tree as messages call it: `params/kernel`."""
    inner = jax.tree_util.keystr(path, simple=True, separator="/")
    return f"{name}/{inner}" if inner else name


def varying_axes(y: jax.Array) -> Collection[str]:
    """The manual axes along which a value may differ, as JAX keeps track of them."""
    kept = getattr(jax.typeof(y), "manual_axis_type", None)
    return () if kept is None else kept.varying


def _is_names(entry: Any) -> bool:
    names = type(entry) is tuple and all(each is None or isinstance(each, str) for each in entry)
    return names and any(entry)


def _is_entry(entry: Any) -> bool:
    return entry is None or isinstance(entry, PartitionSpec | str) or _is_names(entry)


def _as_array(x: Any) -> jax.Array:
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """The names of `fn`'s positional parameters; `args[1]` where it has none."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some callables of C have no signature
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds][:count]
    return names + [f"args[{i}]" for i in range(len(names), count)]
