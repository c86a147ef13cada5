"""What an exchange moves is named, and what moves although no annotation says so is a surprise."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import make_mesh, mesh_split, pad_to_split, replicate, split
from gshard_annotate.inspector import inspect

HERE = "test_inspector_moved.py"


@pytest.fixture
def mesh():
    return make_mesh({"data": 2, "model": 4})


def placed(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
    )


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def line(function, below):
    """`file:line`, so many lines below a function's `def`."""
    return f"{HERE}:{function.__code__.co_firstlineno + below}"


def complaints(report):
    """Kind and complaint of each surprise, without size and line."""
    return sorted(
        (one.collective.kind, one.surprise.partition(": ")[2])
        for one in report.exchanges
        if one.surprise
    )


def test_the_weight_moves_although_the_activation_lies_otherwise_too(mesh):
    def net(p, x):
        x = split(x, 0, "data", mesh=mesh)
        h = jnp.tanh(x @ p["a"])
        return h @ p["b"]

    params = {"a": placed(mesh, (64, 128), None, "model"), "b": placed(mesh, (128, 96), "data")}
    report = inspect(net, params, shaped(32, 64), mesh=mesh)
    assert report.surprises == [
        f"collective-permute of 12 KiB at {line(net, 3)}: dot_general moves parts of p['b'], "
        "which is P('data', None)"
    ]
    (total,) = [one for one in report.exchanges if one.collective.kind == "all-reduce"]
    assert (total.mesh_axes, total.cause) == (("model",), "p['a'] P(None, 'model')")


def test_operands_of_one_sharding_are_told_apart_and_sums_that_nobody_asked_for_are_told(mesh):
    def layer(w, x):
        return split(jnp.tanh(x @ w), 0, "data", mesh=mesh)

    w, x = placed(mesh, (512, 512), "data"), placed(mesh, (64, 512), "data")
    assert inspect(layer, w, x).surprises == [
        f"collective-permute of 256 KiB at {line(layer, 1)}: dot_general moves parts of w, which "
        "is P('data', None)",
        f"all-reduce of 64 KiB at {line(layer, 1)}: the compiler spreads dot_general over "
        "'model', as no sharding asks",
    ]


def test_calls_of_one_line_are_told_apart_by_their_callers(mesh):
    def dense(x, w):
        return x @ w

    def net(p, x):
        x = split(x, 0, "data", mesh=mesh)
        h = jnp.tanh(dense(x, p["a"]))
        return dense(h, p["b"])

    params = {"a": placed(mesh, (64, 64), "model"), "b": placed(mesh, (64, 64), "data")}
    assert complaints(inspect(net, params, shaped(32, 64), mesh=mesh)) == [
        ("all-reduce", "the compiler spreads dot_general over 'model', as no sharding asks"),
        ("collective-permute", "dot_general moves parts of p['b'], which is P('data', None)"),
    ]


def test_weights_used_by_one_call_on_one_line_are_named_each(mesh):
    def attention(p, x):
        x = split(x, 0, "data", mesh=mesh)
        q, k, v = (mesh_split(x @ p[n], [0, 1], ["data", "model"], mesh=mesh) for n in "qkv")
        return q * k * v

    params = {name: placed(mesh, (64, 64), "data", "model") for name in "qkv"}
    used = "is split on 'data' and 'model' but used split on 'model' only"
    assert complaints(inspect(attention, params, shaped(32, 64), mesh=mesh)) == [
        ("all-gather", f"p['{name}'] {used}") for name in "kqv"
    ]


def test_layers_of_a_python_loop_are_named_each(mesh):
    def layers(p, x):
        for w in p:
            x = split(jnp.tanh(x @ w), 0, ("data", "model"), mesh=mesh)
        return x

    params = [placed(mesh, (64, 64), "data")] * 3
    report = inspect(layers, params, placed(mesh, (32, 64), ("data", "model")))
    assert complaints(report) == [
        ("all-gather", f"p[{i}] is split on 'data' but used replicated") for i in range(3)
    ]


def test_a_weight_in_a_loop_with_a_cast_is_found(mesh):
    def layer(x, w):
        return split(x @ w.astype(x.dtype).T, 0, ("data", "model"), mesh=mesh), ()

    def layers(params, x):
        return jax.lax.scan(layer, x, params["w"])[0]

    params = {"w": placed(mesh, (6, 16, 16), None, None, "model")}
    x = jax.ShapeDtypeStruct((64, 16), jnp.bfloat16)
    report = inspect(jax.value_and_grad(lambda p, x: layers(p, x).astype(jnp.float32).sum()),
                     params, x, mesh=mesh)  # fmt: skip
    gathers = {one for one in complaints(report) if one[0] == "all-gather"}
    assert gathers == {("all-gather", "p['w'] is split on 'model' but used replicated")}


@pytest.mark.parametrize(
    ("annotation", "spec", "used"),
    [
        (lambda y, mesh: replicate(y, mesh=mesh), (None, "model"),
         "is split on 'model' but used replicated"),
        (lambda y, mesh: split(y, 1, "model", mesh=mesh), ("data", "model"),
         "is split on 'data' and 'model' but used split on 'model' only"),
    ],
)  # fmt: skip
def test_what_is_annotated_is_no_reason_to_gather_a_weight(mesh, annotation, spec, used):
    def product(w, x):
        return annotation(x @ w, mesh)

    report = inspect(product, placed(mesh, (512, 512), *spec), placed(mesh, (8, 512), "data"))
    weight = [one for one in report.exchanges if "w " in one.cause]
    assert [(one.collective.kind, one.surprise.partition(": ")[2]) for one in weight] == [
        ("all-gather", f"w {used}")
    ]


def test_an_activation_larger_than_what_is_annotated_is_no_part_of_the_annotation(mesh):
    def product(w, x):
        return replicate(jnp.tanh(x * 2) @ w, mesh=mesh)

    report = inspect(product, shaped(512, 2), placed(mesh, (64, 512), "data"))
    assert report.surprises == [
        f"all-gather of 128 KiB at {line(product, 1)}: the result of tanh at {line(product, 1)} "
        "is split on 'data' but used replicated"
    ]


def test_a_result_that_is_gathered_before_an_annotation_splits_it(mesh):
    """As in the step of a mixture of experts, whose combined tokens are split over both axes."""

    def combine(weights, outputs):
        outputs = mesh_split(jnp.cumsum(outputs, 2), [0, 1], ["model", "data"], mesh=mesh)
        weights = mesh_split(jnp.cumsum(weights, 2), [0, 2], ["data", "model"], mesh=mesh)
        y = jnp.einsum("gse,egsm->gsm", weights, outputs)
        return split(y, 0, ("data", "model"), mesh=mesh)

    report = inspect(combine, shaped(8, 16, 4), shaped(4, 8, 16, 32), mesh=mesh)
    assert report.surprises[0] == (
        f"all-gather of 16 KiB at {line(combine, 3)}: the result of dot_general is gathered over "
        f"'data', although split[0:data+model] at {line(combine, 4)} asks for "
        "P(('data', 'model'), None, None) of it"
    )


def test_a_result_without_a_name_goes_by_what_it_was_made_from(mesh):
    """XLA multiplies where an einsum has nothing to add up, and forgets the name."""

    def experts(x):
        x = split(x, 0, ("data", "model"), mesh=mesh)
        gate = jax.nn.softmax(x[..., :4])
        to = jnp.einsum("gse,gsm->egsm", gate, x)
        to = mesh_split(to, [0, 1], ["model", "data"], mesh=mesh)
        back = jnp.einsum("gse,egsm->gsm", gate, to)
        return split(back, 0, ("data", "model"), mesh=mesh)

    report = inspect(experts, shaped(8, 16, 32), mesh=mesh)
    there = f"mesh_split[0:model,1:data] at {line(experts, 4)}"
    assert [(one.collective.kind, one.cause) for one in report.exchanges] == [
        ("all-to-all", there),
        ("all-to-all", f"{there} -> split[0:data+model] at {line(experts, 6)}"),
    ]
    assert report.surprises == []


def test_an_argument_that_is_exchanged_between_two_annotations_as_they_say(mesh):
    def exchange(x):
        x = mesh_split(x, [0], ["data"], mesh=mesh)
        return mesh_split(x * 2, [1], ["data"], mesh=mesh)

    report = inspect(exchange, shaped(64, 64), mesh=mesh)
    (one,) = report.exchanges
    assert (one.collective.kind, one.surprise) == ("all-to-all", "")


def test_candidates_for_a_maximum_are_no_surprise(mesh):
    def highest(x):
        return jnp.argmax(split(x, 1, "model", mesh=mesh), 1)

    report = inspect(highest, shaped(8, 4096), mesh=mesh)
    assert {one.collective.bytes for one in report.exchanges} == {128}
    assert {one.cause for one in report.exchanges} == {f"split[1:model] at {line(highest, 1)}"}
    assert report.surprises == []


def test_a_result_that_is_moved_to_where_it_belongs(mesh):
    def ordered(x):
        return jnp.sort(split(x, 1, "model", mesh=mesh), 1)

    assert complaints(inspect(ordered, shaped(8, 64), mesh=mesh)) == [
        ("all-to-all", "sort moves parts of x (split[1:model] at "
         f"{line(ordered, 1)}), which is P(None, 'model')"),
        ("all-to-all", "the compiler computes sort in other parts, and moves them to make it "
         "P(None, 'model')"),
    ]  # fmt: skip


def test_a_bias_that_is_added_is_found_behind_its_broadcast(mesh):
    def layer(x, b):
        return split(jnp.tanh(split(x, 0, ("data", "model"), mesh=mesh) + b), 0,
                     ("data", "model"), mesh=mesh)  # fmt: skip

    report = inspect(layer, shaped(16, 64), placed(mesh, (64,), "model"))
    assert complaints(report) == [("all-gather", "b is split on 'model' but used replicated")]


def test_what_unpad_gathers_is_asked_for(mesh):
    def weights(x):
        padded = pad_to_split(x, 0, "model", mesh=mesh).softmax(0)
        with jax.named_scope("unpad[0]"):
            return padded.unpad()

    report = inspect(weights, shaped(7, 4), mesh=mesh)
    (gather,) = [one for one in report.exchanges if one.collective.kind == "all-gather"]
    assert gather.cause == f"unpad[0] at {line(weights, 3)}"
    assert report.surprises == []


def test_the_sum_of_sum_partials_goes_by_its_label(mesh):
    split_rows = PartitionSpec("model")

    def total(x):
        with jax.named_scope("sum_partials[model]"):
            return jax.shard_map(
                lambda x: jax.lax.psum(x.sum(0), "model"), mesh=mesh, in_specs=split_rows,
                out_specs=PartitionSpec(), check_vma=False,
            )(x)  # fmt: skip

    (one,) = inspect(total, placed(mesh, (8, 4), "model")).exchanges
    assert one.source is not None
    assert one.cause == f"sum_partials[model] at {HERE}:{one.source.line}"


def test_the_boundary_of_sum_partials_goes_by_its_label(mesh):
    def total(x):
        with jax.named_scope("sum_partials[model]"):
            return jax.shard_map(
                jnp.sin, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(),
                check_vma=False,
            )(x)  # fmt: skip

    (one,) = inspect(total, placed(mesh, (8, 4), "model")).exchanges
    assert one.cause == f"sum_partials[model] at {line(total, 2)}"
