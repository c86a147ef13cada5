"""A value with padding that cannot be counted by forgetting it.

A `Padded` is no array, so whatever would count the padding is a TypeError; its own reductions put
their identity into the padding first (GShard, arXiv 2006.16668, section 3.3).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate.checks import axes_tuple, describe, raise_faults

Axis = int | Sequence[int] | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Padded:
    """An array that is longer than it claims, and knows it.

    Dimensions count from the end, so that `vmap` and `scan` over a leading dimension keep them
    right.

    Attributes:
      padded: The raw array, padding included.
      dims: The padded dimensions.
      sizes: Their true sizes.
      padded_sizes: Their sizes in `padded`.
    """

    padded: jax.Array
    dims: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    padded_sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The true shape."""
        shape = list(self._raw.shape)
        for dim, size in zip(self.dims, self.sizes, strict=True):
            shape[dim] = size
        return tuple(shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._raw.ndim

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._raw.dtype

    def mask(self) -> jax.Array:
        """True where an element is none of the padding; of size 1 in dimensions without any."""
        return self._mask(range(len(self.dims)))

    def filled(self, value: Any = 0) -> jax.Array:
        """The raw array with `value` in the padding: 0 makes it safe to contract.

        No gradient comes back through the padding.
        """
        return self._filled(value, range(len(self.dims)))

    def unpad(self) -> jax.Array:
        """The array in its true shape; whole along dimensions that were padded.

        JAX cannot keep them split: this gathers.
        """
        if self.sizes == self.padded_sizes:
            return self._raw
        with jax.named_scope(f"unpad[{','.join(str(dim % self.ndim) for dim in self.dims)}]"):
            raw = whole(self._raw, self.dims)
            return lax.slice(raw, (0,) * raw.ndim, self.shape)

    def map(self, fn: Callable[..., Any], *others: "Padded") -> Any:
        """`fn` of each slice along the padded dimensions, as a `Padded` again.

        `fn` gets arrays without the padded dimensions (as under `jax.vmap`), so it cannot mix true
        elements with padding; its result gets them back where they were, or last if it has fewer
        dimensions than that. It may return a tree.

        Args:
          fn: From slices of this and of `others` to arrays; other arrays it closes over.
          *others: Further operands, padded alike.
        """
        operands = (self, *others)
        raise_faults("Padded.map", [fault for one in others for fault in self._alike_faults(one)])
        order = sorted(range(len(self.dims)), key=lambda i: self.dims[i])
        mapped = fn
        for done, i in enumerate(order):
            mapped = jax.vmap(mapped, in_axes=tuple(one._axis(i, order[:done]) for one in operands))
        out = mapped(*(one._inert() for one in operands))
        return jax.tree.map(lambda y: self._put_back(y, order), out)

    def sum(self, axis: Axis = None) -> Any:
        """The sum over `axis` (None: all): a `Padded` while padded dimensions are left."""
        return self._reduce(jnp.sum, 0, axis)

    def max(self, axis: Axis = None) -> Any:
        """The maximum over `axis`, as `sum`."""
        return self._reduce(jnp.max, _extreme(self.dtype, -1), axis)

    def min(self, axis: Axis = None) -> Any:
        """The minimum over `axis`, as `sum`."""
        return self._reduce(jnp.min, _extreme(self.dtype, 1), axis)

    def mean(self, axis: Axis = None) -> Any:
        """The mean over `axis`, as `sum`; padding is not counted."""
        shape = self.shape
        count = math.prod(shape[i] for i in self._axes(axis))
        dtype = jax.eval_shape(jnp.mean, self._raw).dtype
        wide = jnp.promote_types(dtype, jnp.float32)  # as jnp.mean: half precision adds in float32

        def mean(x: jax.Array, axis: tuple[int, ...]) -> jax.Array:
            return (jnp.sum(x, axis, dtype=wide) / count).astype(dtype)

        return self._reduce(mean, 0, axis)

    def logsumexp(self, axis: Axis = None) -> Any:
        """The logarithm of the sum of exponentials over `axis`, as `sum`."""
        return self._reduce(jax.nn.logsumexp, self._minus_infinity("logsumexp"), axis)

    def softmax(self, axis: int | Sequence[int] = -1) -> "Padded":
        """Weights over `axis` that sum to 1 over true elements, as a `Padded`."""
        axes = self._axes(axis)
        inside = [i for i, dim in enumerate(self.dims) if dim % self.ndim in axes]
        x = self._filled(self._minus_infinity("softmax"), inside)
        weights = jax.nn.softmax(x, axes)
        # The padding got 0, whose logarithm is not finite; a weight in the middle is safe.
        return dataclasses.replace(self, padded=jnp.where(self._mask(inside), weights, 0.5))

    @property
    def _raw(self) -> jax.Array:
        """The raw array, if it still is what the sizes say."""
        shape = getattr(self.padded, "shape", ())
        for dim, size in zip(self.dims, self.padded_sizes, strict=True):
            if -dim > len(shape) or shape[dim] != size:
                raise ValueError(
                    f"Padded: dimension {dim} is padded to {size}, but the array inside has shape "
                    f"{tuple(shape)}; map over leading dimensions, not over the padded one"
                )
        return self.padded

    def _axes(self, axis: Axis) -> tuple[int, ...]:
        ndim = self.ndim
        single = isinstance(axis, int | np.integer | str)
        given = range(ndim) if axis is None else [axis] if single else list(axis)
        faults = [
            f"there is no axis {i!r} in {describe(self)}; give {-ndim} to {ndim - 1}"
            for i in given
            if not isinstance(i, int | np.integer) or not -ndim <= i < ndim
        ]
        raise_faults("Padded", faults)
        return tuple(i % ndim for i in given)

    def _mask(self, which: Sequence[int]) -> jax.Array:
        mask = jnp.ones((1,) * self.ndim, bool)
        for i in which:
            dim = self.dims[i] % self.ndim
            shape = [1] * self.ndim
            shape[dim] = self.padded_sizes[i]
            # Over Explicit axes JAX selects only by a mask that is split alike.
            axes = split_over(self._raw)[dim]
            spec = PartitionSpec(*(axes if j == dim else None for j in range(self.ndim)))
            sharding = NamedSharding(jax.typeof(self._raw).sharding.mesh, spec) if axes else None
            index = lax.broadcasted_iota(jnp.int32, shape, dim, out_sharding=sharding)
            mask = mask & (index < self.sizes[i])
        return mask

    def _filled(self, value: Any, which: Sequence[int]) -> jax.Array:
        # The padding of other dimensions has to stay harmless.
        raw = self._raw if len(which) == len(self.dims) else self._inert()
        which = [i for i in which if self.sizes[i] != self.padded_sizes[i]]
        value = element("Padded", value, raw.dtype)
        return jnp.where(self._mask(which), raw, value) if which else raw

    def _inert(self) -> jax.Array:
        """The raw array whose padding is finite and passes no gradient.

        Selecting after an operation keeps its gradient finite; selecting before it keeps a
        gradient that is infinite in the padding from what the padding was computed with.
        """
        raw = self._raw
        if self.sizes == self.padded_sizes:
            return raw
        padding = lax.stop_gradient(raw)
        if jnp.issubdtype(raw.dtype, jnp.inexact):
            padding = jnp.where(jnp.isfinite(padding), padding, 1)
        return jnp.where(self.mask(), raw, padding)

    def _reduce(self, reduction: Callable[..., jax.Array], identity: Any, axis: Axis) -> Any:
        axes = self._axes(axis)
        gone = [i for i, dim in enumerate(self.dims) if dim % self.ndim in axes]
        y = reduction(self._filled(identity, gone), axes)
        kept = [i for i in range(len(self.dims)) if i not in gone]
        if not kept:
            return y
        after = {i: sum(j > self.dims[i] % self.ndim for j in axes) for i in kept}
        return self._with(y, kept, [self.dims[i] + after[i] for i in kept])

    def _with(self, y: jax.Array, which: Sequence[int], dims: Sequence[int]) -> "Padded":
        sizes = tuple(self.sizes[i] for i in which)
        padded_sizes = tuple(self.padded_sizes[i] for i in which)
        result = Padded(y, tuple(dims), sizes, padded_sizes)
        return dataclasses.replace(result, padded=result._inert())

    def _axis(self, i: int, inside: Sequence[int]) -> int:
        """Where padded dimension i stands once all but those of `inside` and i are mapped."""
        taken = [self.dims[j] for j in range(len(self.dims)) if j != i and j not in inside]
        return self.dims[i] % self.ndim - sum(dim < self.dims[i] for dim in taken)

    def _put_back(self, y: jax.Array, order: Sequence[int]) -> "Padded":
        """From `vmap`, which puts the padded dimensions first, in reversed `order`."""
        rank = y.ndim - len(order)
        where = [min(self.dims[i] % self.ndim, rank + n) for n, i in enumerate(order)]
        y = jnp.moveaxis(y, range(len(order)), where[::-1])
        return self._with(y, order, [i - y.ndim for i in where])

    def _alike_faults(self, other: Any) -> list[str]:
        if not isinstance(other, Padded):
            raise TypeError(
                f"Padded.map: operands are of type Padded, {type(other).__name__} was given; "
                "let fn close over other arrays"
            )
        if (self.sizes, self.padded_sizes) == (other.sizes, other.padded_sizes):
            return []
        return [
            f"operands are padded differently: {self.sizes} to {self.padded_sizes} and "
            f"{other.sizes} to {other.padded_sizes}; pad them alike"
        ]

    def _minus_infinity(self, who: str) -> float:
        if not jnp.issubdtype(self.dtype, jnp.floating):
            raise TypeError(f"Padded.{who}: {describe(self)} is not floating; use map to convert")
        return -math.inf


def _extreme(dtype: Any, sign: int) -> Any:
    """The largest (1) or lowest (-1) value of a type: what a minimum or maximum starts from."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return sign > 0
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).max if sign > 0 else jnp.iinfo(dtype).min
    return sign * math.inf


def element(who: str, value: Any, dtype: Any) -> jax.Array:
    """`value` as a scalar of this dtype.

    Raises:
      ValueError: A number that the dtype cannot hold, such as -inf in an integer.
    """
    if isinstance(value, int | float):  # bool included
        if jnp.issubdtype(dtype, jnp.bool_):
            holds = value in (0, 1)
        elif jnp.issubdtype(dtype, jnp.integer):
            limits = jnp.iinfo(dtype)
            holds = float(value).is_integer() and limits.min <= value <= limits.max
        else:
            holds = True
        if not holds:
            raise ValueError(f"{who}: {value!r} is no {dtype}; give a value of this type")
    return jnp.asarray(value, dtype)


def _refuse(self: Padded, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        f"{describe(self)} padded to {list(self.padded.shape)} is no array: its padding would "
        "count. Use its sum, max, min, mean, logsumexp, softmax or map(fn); filled(0) to contract; "
        "unpad() for the true shape; .padded for the raw array"
    )


# What would take a Padded for an array, or compare it by identity without a word.
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_ARITHMETIC += ("and", "or", "xor", "lshift", "rshift", "divmod")
_REFUSED = [f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r")]
_REFUSED += [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs")]
_REFUSED += [f"__{name}__" for name in ("invert", "getitem", "len", "bool", "int", "float")]
_REFUSED += [f"__{name}__" for name in ("array", "array_ufunc", "array_function", "jax_array")]
for _name in _REFUSED:
    setattr(Padded, _name, _refuse)
Padded.__hash__ = None  # pyright: ignore[reportAttributeAccessIssue]  # as for every array


def split_over(x: jax.Array) -> list[tuple[str, ...]]:
    """The Explicit mesh axes that split each dimension."""
    spec = jax.typeof(x).sharding.spec.partitions
    return [axes_tuple(each) for each in spec] + [()] * (x.ndim - len(spec))


def whole(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    """`x` with these dimensions whole where they are split over Explicit axes, as JAX demands."""
    axes = split_over(x)
    if not any(axes[dim] for dim in dims):
        return x
    for dim in dims:
        axes[dim] = ()
    return jax.sharding.reshard(x, PartitionSpec(*axes))
