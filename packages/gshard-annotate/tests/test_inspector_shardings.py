"""Shardings and device groups in XLA's notations."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate.inspector.groups import group_axes, groups, pair_axes, touched_axes
from gshard_annotate.inspector.shardings import (
    from_hlo,
    from_sdy,
    from_spec,
    sdy_meshes,
    split_tuple,
)

AXES = {"data": 2, "expert": 4}


@pytest.mark.parametrize(
    ("text", "rank", "spec"),
    [
        ("{replicated}", 2, "P()"),
        ("{maximal device=0}", 1, "{maximal device=0}"),
        ("{manual}", 2, "manual"),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", 2, "P('data', None)"),
        ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", 2, "P(None, 'expert')"),
        ("{devices=[4,2]<=[2,4]T(1,0)}", 2, "P('expert', 'data')"),
        ("{devices=[8,1]<=[8]}", 2, "P(('data', 'expert'), None)"),
        ("{devices=[8]<=[2,4]T(1,0)}", 1, "P(('expert', 'data'))"),
        ("{devices=[2,4]0,1,2,3,4,5,6,7}", 2, "P('data', 'expert')"),
        ("{devices=[1,1,4,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}", 2, "P()"),
        ("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", 2,
         "P('data', None, unreduced={'expert'})"),
        # Parts of an axis: the upper half of 'expert', the lower half.
        ("{devices=[4,2]<=[8] last_tile_dim_replicate}", 1, "P(('data', 'expert:(1)2'))"),
        ("{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", 1, "P('expert:(2)2')"),
        # No axes make that order.
        ("{devices=[8]1,0,2,3,4,5,6,7}", 1, "{devices=[8]1,0,2,3,4,5,6,7}"),
    ],
)  # fmt: skip
def test_reads_shardings(text, rank, spec):
    assert str(from_hlo(text, rank, AXES)) == spec


@pytest.mark.parametrize("dims", list(itertools.product(range(3), repeat=2)))
def test_reads_what_jax_writes(mesh, dims):
    """All ways to split a 3-dimensional array over both axes of a mesh, against JAX's own."""
    axes = [()] * 3
    for dim, axis in zip(dims, AXES, strict=True):
        axes[dim] = (*axes[dim], axis)
    spec = PartitionSpec(*(one or None for one in axes))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    lowered = jax.jit(lambda x: x, in_shardings=sharding).lower(np.ones((8, 8, 8), np.float32))
    asked = from_sdy(lowered.as_text(), AXES)
    assert asked is not None
    assert asked.dims == from_spec(spec, 3, AXES).dims == tuple(axes)
    assert asked.local((8, 8, 8)) == sharding.shard_shape((8, 8, 8))


def test_shardy_s_notation_with_open_dimensions_and_parts():
    text = '#sdy.sharding_per_value<[<@mesh, [{\\"expert\\"}, {\\"data\\", ?}, {?}, {}]>]>'
    placement = from_sdy(text, AXES)
    assert placement is not None
    assert str(placement) == "P('expert', 'data', UNCONSTRAINED, None)"
    assert (placement.parts, placement.open) == ((4, 2, 1, 1), (1, 2))
    part = from_sdy('<@mesh, [{"expert":(1)2}], unreduced={"data"}>', AXES)
    assert part is not None
    assert (part.dims, part.parts, part.unreduced) == ((("expert:(1)2",),), (2,), ("data",))
    assert from_sdy("nothing of the kind", AXES) is None


def test_meshes_of_a_program():
    header = 'meshes={empty = #sdy.mesh<[]>, mesh = #sdy.mesh<["data"=2, "expert"=4]>}'
    assert sdy_meshes(header) == [AXES]


def test_parts_are_rounded_up():
    placement = from_hlo("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", 2, AXES)
    assert placement.local((6, 5)) == (2, 5)
    assert placement.axes == {"expert"}


def test_tuples_fall_apart():
    text = "{{replicated}, {devices=[8,1]<=[8]}, /*index=2*/{manual}}"
    assert split_tuple(text) == ["{replicated}", "{devices=[8,1]<=[8]}", "{manual}"]
    assert split_tuple("{replicated}") == ["{replicated}"]


BY_EXPERT = [[0, 1, 2, 3], [4, 5, 6, 7]]
BY_DATA = [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("text", "rows", "axes"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", BY_EXPERT, ("expert",)),
        ("[2,4]<=[8]", BY_EXPERT, ("expert",)),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", BY_EXPERT, ("expert",)),
        ("mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_0'}", BY_EXPERT,
         ("expert",)),
        ("{{0,4},{1,5},{2,6},{3,7}}", BY_DATA, ("data",)),
        ("[4,2]<=[2,4]T(1,0)", BY_DATA, ("data",)),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", BY_DATA, ("data",)),
        ("[1,8]<=[8]", [list(range(8))], ("data", "expert")),
        ("mesh['a'=2,'b'=4] {'a','b'}", [list(range(8))], ("data", "expert")),
        ("mesh['a'=8] {'a':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]], ()),
        ("{{0,1},{2,3},{4,5},{6,7}}", [[0, 1], [2, 3], [4, 5], [6, 7]], ()),
    ],
)  # fmt: skip
def test_reads_groups_and_names_their_axes(text, rows, axes):
    found = groups(text)
    assert found is not None
    assert found.tolist() == rows
    assert group_axes(found, AXES) == axes


def test_groups_over_a_part_of_an_axis_touch_it():
    assert touched_axes(groups("{{0,1},{2,3},{4,5},{6,7}}"), AXES) == ("expert",)


def test_groups_that_cannot_be_read():
    assert groups("{}") is None
    assert groups("{{0,1},{2}}") is None
    assert group_axes(None, AXES) == ()
    assert group_axes(groups("[2,2]<=[4]"), AXES) == ()  # another number of devices


def test_pairs_of_a_permutation():
    assert pair_axes("{{0,3},{1,2},{2,1},{3,0},{4,7}}", AXES) == ("expert",)
    assert pair_axes("{{0,4},{4,0}}", AXES) == ("data",)
    assert pair_axes("{{0,5}}", AXES) == ("data", "expert")
    assert pair_axes("", AXES) == ()
