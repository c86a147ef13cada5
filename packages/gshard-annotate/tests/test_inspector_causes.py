"""Which annotation caused an exchange, and which exchanges nobody asked for."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import mesh_split, replicate, split
from gshard_annotate.inspector import inspect

HERE = "test_inspector_causes.py"


def placed(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
    )


def line(function, below):
    """`file:line`, so many lines below a function's `def`."""
    return f"{HERE}:{function.__code__.co_firstlineno + below}"


def only(report):
    (one,) = report.exchanges
    return one


def test_an_annotation_that_moves_a_split_is_the_cause_of_its_exchange(mesh):
    def exchange(x):
        x = split(x, 0, ("data", "expert"), mesh=mesh)
        return mesh_split(x, [0, 1], ["data", "expert"], mesh=mesh)

    one = only(inspect(exchange, placed(mesh, (8, 4, 16), ("data", "expert"))))
    assert (one.collective.kind, one.mesh_axes, one.group_size) == ("all-to-all", ("expert",), 4)
    assert (one.collective.bytes, one.times) == (256, 1)
    assert one.cause == f"mesh_split[0:data,1:expert] at {line(exchange, 2)}"
    assert one.surprise == ""


def test_replicating_is_asked_for(mesh):
    def gathered(x):
        return replicate(x * 2, mesh=mesh)

    one = only(inspect(gathered, placed(mesh, (8, 4), "data")))
    assert (one.collective.kind, one.surprise) == ("all-gather", "")
    assert one.cause == f"replicate[] at {line(gathered, 1)}"


def test_a_sharding_asked_for_a_result_is_asked_for(mesh):
    whole = NamedSharding(mesh, PartitionSpec())
    one = only(inspect(lambda x: x * 2, placed(mesh, (8, 4), "data"), out_shardings=whole))
    assert (one.collective.kind, one.cause) == ("all-gather", "result asked as P()")
    assert one.surprise == ""


def test_a_sum_over_a_split_dimension_is_no_surprise(mesh):
    def product(x, w):
        return replicate(x @ w, mesh=mesh)

    x, w = placed(mesh, (3, 8), None, "expert"), placed(mesh, (8, 5), "expert")
    one = only(inspect(product, x, w))
    assert (one.collective.kind, one.surprise) == ("all-reduce", "")
    assert one.cause == "x P(None, 'expert')"


def test_a_loss_s_sum_and_its_gradient_are_no_surprise(mesh):
    def loss(w, x):
        return ((split(x, 0, "data", mesh=mesh) @ w) ** 2).sum()

    report = inspect(jax.value_and_grad(loss), jax.ShapeDtypeStruct((4, 4), jnp.float32),
                     placed(mesh, (8, 4), "data"))  # fmt: skip
    assert {one.collective.kind for one in report.exchanges} == {"all-reduce"}
    assert report.surprises == []


def test_an_argument_that_is_split_but_used_whole(mesh):
    def layer(x, w):
        return split(x @ w["wi"], 0, ("data", "expert"), mesh=mesh)

    x = placed(mesh, (64, 32), ("data", "expert"))
    report = inspect(layer, x, {"wi": placed(mesh, (32, 16), "expert")})
    one = only(report)
    assert one.surprise == (
        f"all-gather of 2 KiB at {line(layer, 1)}: w['wi'] is split on 'expert' but used replicated"
    )
    assert one.surprise in report.surprises
    assert one.cause == f"w['wi'] P('expert', None) -> split[0:data+expert] at {line(layer, 1)}"


def test_an_argument_that_is_annotated_goes_by_its_name(mesh):
    def product(w, x):
        w = split(w, 0, "expert", mesh=mesh)
        x = split(x, 0, ("data", "expert"), mesh=mesh)
        return split(x @ w, 0, ("data", "expert"), mesh=mesh)

    one = only(inspect(product, placed(mesh, (12, 8)), placed(mesh, (16, 12))))
    assert one.surprise == (
        f"all-gather of 384 B at {line(product, 3)}: w (split[0:expert] at {line(product, 1)}) is "
        "split on 'expert' but used replicated"
    )


def test_an_argument_that_is_split_in_one_way_and_used_in_another(mesh):
    def product(w, x):
        w = split(w, 0, "expert", mesh=mesh)
        x = split(x, 0, "data", mesh=mesh)
        return mesh_split(jnp.tanh(x @ w), [0, 1], ["data", "expert"], mesh=mesh)

    one = only(inspect(product, placed(mesh, (512, 256)), placed(mesh, (64, 512))))
    assert (one.collective.kind, one.mesh_axes) == ("all-to-all", ("expert",))
    assert one.surprise == (
        f"all-to-all of 128 KiB at {line(product, 3)}: w (split[0:expert] at {line(product, 1)}) "
        "is P('expert', None) but dot_general makes P('data', 'expert') of it"
    )


def test_the_same_in_a_scan_over_layers_runs_as_often(mesh):
    def layer(x, w):
        return split(jnp.tanh(x @ w), 0, ("data", "expert"), mesh=mesh), ()

    def layers(x, params):
        return jax.lax.scan(layer, x, params["w"])[0]

    x = placed(mesh, (64, 16), ("data", "expert"))
    one = only(inspect(layers, x, {"w": placed(mesh, (6, 16, 16), None, "expert")}))
    assert (one.collective.kind, one.times) == ("all-gather", 6)
    assert one.surprise == (
        f"all-gather of 1 KiB at {line(layer, 1)}: params['w'] is split on 'expert' but used "
        "replicated"
    )


def test_what_is_left_after_gathering_over_one_axis(mesh):
    def layer(x, w):
        return mesh_split(x @ w, [0, 1], ["data", "expert"], mesh=mesh)

    x = placed(mesh, (64, 32), "data")
    report = inspect(layer, x, placed(mesh, (32, 16), "data", "expert"))
    assert only(report).surprise == (
        f"all-gather of 512 B at {line(layer, 1)}: w is split on 'data' and 'expert' but used "
        "split on 'expert' only"
    )


def test_an_annotation_that_asks_for_a_split_is_no_excuse_to_gather(mesh):
    """The dimensions swap axes; XLA gathers one of them instead of exchanging parts."""

    def swapped(x):
        x = mesh_split(x, [0, 1], ["data", "expert"], mesh=mesh)
        return mesh_split(x, [0, 1], ["expert", "data"], mesh=mesh)

    report = inspect(swapped, placed(mesh, (8, 8), "data", "expert"))
    for one in report.exchanges:
        assert one.cause == f"mesh_split[0:expert,1:data] at {line(swapped, 2)}"
    assert len(report.surprises) == sum(
        one.collective.kind == "all-gather" for one in report.exchanges
    )


def test_reversing_a_split_dimension(mesh):
    def backwards(x):
        return split(x[::-1], 0, "data", mesh=mesh)

    one = only(inspect(backwards, placed(mesh, (8, 4), "data")))
    assert one.surprise == (
        f"collective-permute of 64 B at {line(backwards, 1)}: "
        "rev moves parts of x, which is P('data', None)"
    )


def test_an_axis_that_only_the_compiler_uses(mesh):
    def attend(q, k, v):
        return jax.nn.softmax(q @ k.T) @ v

    q = placed(mesh, (64, 16), "data")
    gathered = [one for one in inspect(attend, q, q, q).exchanges if one.mesh_axes == ("expert",)]
    assert {one.surprise for one in gathered if one.collective.kind == "all-gather"} == {
        f"all-gather of 4 KiB at {line(attend, 1)}: the compiler spreads dot_general over "
        "'expert', as no sharding asks, and puts it together again"
    }


def test_the_edges_of_a_convolution_are_no_surprise(mesh):
    def convolve(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        )

    x, k = placed(mesh, (2, 16, 4), None, "expert"), jax.ShapeDtypeStruct((3, 4, 5), jnp.float32)
    report = inspect(convolve, x, k)
    assert [one.collective.kind for one in report.exchanges] == ["collective-permute"] * 2
    assert {one.cause for one in report.exchanges} == {"x P(None, 'expert', None)"}
    assert report.surprises == []


@pytest.mark.parametrize(
    ("name", "kind", "body"),
    [
        ("psum", "all-reduce", lambda x: jax.lax.psum(x, "expert")),
        ("all_gather", "all-gather", lambda x: jax.lax.all_gather(x, "expert")),
        ("all_to_all", "all-to-all",
         lambda x: jax.lax.all_to_all(x, "expert", 1, 0, tiled=True)),
        ("ppermute", "collective-permute",
         lambda x: jax.lax.ppermute(x, "expert", [(i, (i + 1) % 4) for i in range(4)])),
    ],
)  # fmt: skip
def test_what_is_written_in_a_shard_map_is_no_surprise(mesh, name, kind, body):
    split_in = PartitionSpec("expert")
    manual = jax.shard_map(body, mesh=mesh, in_specs=split_in, out_specs=split_in, check_vma=False)
    one = only(inspect(manual, placed(mesh, (16, 8), "expert")))
    assert (one.collective.kind, one.mesh_axes, one.group_size) == (kind, ("expert",), 4)
    assert one.cause == f"{name} at {HERE}:{one.source.line}"
    assert one.surprise == ""


def test_the_boundary_of_a_shard_map_is_asked_for(mesh):
    def whole(x):
        return jax.shard_map(jnp.sin, mesh=mesh, in_specs=PartitionSpec(),
                             out_specs=PartitionSpec(), check_vma=False)(x)  # fmt: skip

    one = only(inspect(whole, placed(mesh, (16, 8), "expert")))
    assert (one.collective.kind, one.surprise) == ("all-gather", "")
    assert one.cause == f"shard_map at {line(whole, 1)}"


def moe(mesh, groups_over):
    """A top-1 mixture of experts: groups of tokens, dispatched by one-hot einsums."""

    def layer(x, wi, wo):
        x = split(x, 0, groups_over, mesh=mesh)
        mask = jax.nn.one_hot(x[..., :8].argmax(-1), 8)
        to = split(jnp.einsum("gsm,gse->egsm", x, mask), 1, groups_over, mesh=mesh)
        to = mesh_split(to, [0, 1], ["expert", "data"], mesh=mesh)
        hidden = jax.nn.relu(jnp.einsum("egsm,emh->egsh", to, wi))
        back = mesh_split(jnp.einsum("egsh,ehm->egsm", hidden, wo), [0, 1], ["expert", "data"],
                          mesh=mesh)  # fmt: skip
        back = split(back, 1, groups_over, mesh=mesh)
        return split(jnp.einsum("egsm,gse->gsm", back, mask), 0, groups_over, mesh=mesh)

    x = placed(mesh, (16, 12, 16), groups_over)
    wi, wo = placed(mesh, (8, 16, 32), "expert"), placed(mesh, (8, 32, 16), "expert")
    return inspect(layer, x, wi, wo), layer


def test_a_mixture_of_experts_as_it_should_be_has_no_surprises(mesh):
    report, layer = moe(mesh, ("data", "expert"))
    assert [one.collective.kind for one in report.exchanges] == ["all-to-all"] * 2
    assert [one.cause for one in report.exchanges] == [
        f"mesh_split[0:expert,1:data] at {line(layer, 4)}",
        f"split[1:data+expert] at {line(layer, 8)}",
    ]
    assert report.surprises == []


def test_groups_over_data_alone_make_the_compiler_gather(mesh):
    report, layer = moe(mesh, "data")
    assert "all-to-all" not in {one.collective.kind for one in report.exchanges}
    gathered = [one for one in report.exchanges if one.collective.kind == "all-gather"]
    assert [(one.mesh_axes, one.cause) for one in gathered] == [
        (("expert",), f"split[1:data] at {line(layer, 8)}")
    ]


def test_without_the_compiler_s_steps_names_still_tell(mesh):
    from gshard_annotate.inspector import inspect_compiled

    def exchange(x):
        x = split(x, 0, ("data", "expert"), mesh=mesh)
        return mesh_split(x, [0, 1], ["data", "expert"], mesh=mesh)

    x = placed(mesh, (8, 4, 16), ("data", "expert"))
    one = only(inspect_compiled(jax.jit(exchange).lower(x).compile()))
    assert one.cause == f"mesh_split[0:data,1:expert] at {line(exchange, 2)}"
