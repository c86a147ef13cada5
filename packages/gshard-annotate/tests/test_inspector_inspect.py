"""Reports about functions: values, memory, mesh, chip; wrong input."""

import re
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import make_mesh, replicate, rules_scope, split
from gshard_annotate.inspector import inspect, inspect_compiled, inspect_lowered
from gshard_annotate.rules import DEFAULT_RULES


def placed(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
    )


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def rows(report, role):
    """The values of a role, without their lines."""
    return [
        (one.name, one.shape, one.asked, one.compiled, one.bytes, one.bytes_per_device, one.note)
        for one in report.values
        if one.role == role
    ]


def test_arguments_results_and_annotations(mesh):
    def layer(params, x):
        x = split(x @ params["w"], 1, "expert", mesh=mesh)
        return {"y": x, "norm": (x**2).sum()}

    report = inspect(
        layer,
        {"w": placed(mesh, (16, 12), None, "expert"), "unused": shaped(3)},
        placed(mesh, (8, 16), "data"),
        out_shardings={"y": None, "norm": NamedSharding(mesh, PartitionSpec())},
    )
    assert rows(report, "argument") == [
        ("argument[0]['unused']", "f32[3]", None, None, 12, 0, ""),
        ("params['w']", "f32[16,12]", "P(None, 'expert')", "P(None, 'expert')", 768, 192, ""),
        ("x", "f32[8,16]", "P('data', None)", "P('data', None)", 512, 256, ""),
    ]
    assert rows(report, "result") == [
        ("result['norm']", "f32[]", "P()", "P()", 4, 4, ""),
        ("result['y']", "f32[8,12]", None, "P(None, 'expert')", 384, 96, ""),
    ]
    (annotation,) = [one for one in report.values if one.role == "annotation"]
    # The annotation closes dimension 0: the rows are gathered.
    assert (annotation.name, annotation.asked) == ("split[1:expert]", "P(None, 'expert')")
    assert (annotation.bytes, annotation.bytes_per_device, annotation.times) == (384, 96, 1)
    assert annotation.source is not None
    assert annotation.source.line == layer.__code__.co_firstlineno + 1
    assert annotation.source.file == __file__
    assert (report.title, report.platform, report.chip) == ("layer", "cpu", None)
    assert report.mesh == {"data": 2, "expert": 4}
    assert report.notes == ()


def test_concrete_arrays_and_numbers_and_keys(mesh):
    x = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, PartitionSpec("data")))
    report = inspect(lambda x, scale, key: x * scale + jax.random.normal(key, (8, 4)), x, 2.0,
                     jax.random.key(0))  # fmt: skip
    assert [row[:4] for row in rows(report, "argument")] == [
        ("x", "f32[8,4]", "P('data', None)", "P('data', None)"),
        ("scale", "f32[]", "P()", "P()"),
        ("key", "key<fry>[]", "P()", "P()"),
    ]


def test_annotations_in_loops_count_their_trips_and_cotangents_are_told_apart(mesh):
    def body(x, w):
        return split(x @ w, 0, "expert", mesh=mesh), ()

    def loss(w, x):
        return jax.lax.scan(body, x, w)[0].sum()

    report = inspect(jax.grad(loss), shaped(5, 4, 4), placed(mesh, (8, 4), "expert"))
    found = [one for one in report.values if one.role == "annotation"]
    assert sorted((one.name, one.times, one.compiled) for one in found) == [
        ("split[0:expert]", 5, "P('expert', None)"),
        ("split[0:expert] (gradient)", 5, "P('expert', None)"),
    ]
    assert {one.source.line for one in found if one.source} == {body.__code__.co_firstlineno + 1}


def test_annotations_of_jax_itself_and_of_functions_traced_before(mesh):
    sharding = NamedSharding(mesh, PartitionSpec(PartitionSpec.UNCONSTRAINED, "expert"))

    @jax.jit
    def constrained(x):
        return jax.lax.with_sharding_constraint(x, sharding)

    constrained(jnp.ones((8, 4)))  # in JAX's cache from here on
    report = inspect(lambda x: constrained(x * 2), placed(mesh, (8, 4), "data"))
    assert rows(report, "annotation") == [
        ("with_sharding_constraint", "f32[8,4]", "P(UNCONSTRAINED, 'expert')",
         "P('data', 'expert')", 128, 16, ""),
    ]  # fmt: skip


def test_a_dimension_that_does_not_divide_is_one_surprise_where_it_is_annotated(mesh):
    sharding = NamedSharding(mesh, PartitionSpec("expert"))

    def doubled(x):
        return jax.lax.with_sharding_constraint(x, sharding) * 2

    report = inspect(doubled, shaped(6, 8))
    (annotation,) = rows(report, "annotation")
    assert annotation[2:] == (
        "P('expert', None)", "P('expert', None)", 192, 64, "6 over 4: padded to 8",
    )  # fmt: skip
    (result,) = rows(report, "result")
    assert result[2:] == (None, "P()", 192, 192, "")
    (gather,) = [one for one in report.exchanges if one.collective.kind == "all-gather"]
    line = doubled.__code__.co_firstlineno + 1
    assert gather.cause == f"with_sharding_constraint at test_inspector_inspect.py:{line}"
    assert report.surprises == ["with_sharding_constraint f32[6,8]: 6 over 4: padded to 8"]


def test_a_result_that_does_not_divide_is_one_surprise_where_it_is_made(mesh):
    report = inspect(lambda x: split(x, 1, "expert", mesh=mesh)[:, 1:8], shaped(3, 8))
    (result,) = rows(report, "result")
    assert result[3:] == ("P()", 84, 84, "")
    (gather,) = [one for one in report.exchanges if one.collective.kind == "all-gather"]
    assert gather.surprise.endswith(
        "result is P(None, 'expert') in the program but returned replicated; 7 over 4 does not "
        "divide"
    )


def test_explicit_axes(mesh):
    explicit = jax.make_mesh((2, 4), ("data", "expert"))  # Explicit, as JAX makes them
    x = placed(explicit, (8, 4), "data")
    report = inspect(lambda x: split(x * 2, 0, "expert"), x, mesh=explicit)
    (annotation,) = rows(report, "annotation")
    assert annotation[:4] == (
        "split[0:expert]",
        "f32[8,4]",
        "P('expert', None)",
        "P('expert', None)",
    )


def test_the_scope_s_mesh_and_a_mesh_that_is_set(mesh):
    def annotated(x):
        return replicate(split(x, 0, "expert"))

    with rules_scope(DEFAULT_RULES, mesh):
        assert inspect(annotated, shaped(8, 4)).mesh == {"data": 2, "expert": 4}
    with jax.set_mesh(mesh):
        assert inspect(annotated, shaped(8, 4)).mesh == {"data": 2, "expert": 4}
    assert inspect(annotated, shaped(8, 4), mesh=mesh).mesh == {"data": 2, "expert": 4}


def test_one_device_needs_no_mesh():
    one = make_mesh({"data": 1}, devices=jax.devices()[:1])
    report = inspect(lambda x: x @ x, shaped(4, 4), mesh=one)
    assert (report.mesh, report.exchanges, report.notes) == ({"data": 1}, (), ())
    assert report.cost.flops == 128


def test_memory_and_what_is_donated(mesh):
    state = placed(mesh, (64, 16), "data", "expert")
    kept, donated = (
        inspect(lambda x: x * 2 + 1, state, donate_argnums=given).memory for given in ((), 0)
    )
    part = 64 * 16 * 4 // 8
    assert (kept.arguments, kept.results, kept.aliased) == (part, part, 0)
    assert (donated.arguments, donated.results, donated.aliased) == (part, part, part)
    assert donated.peak == kept.peak - part
    assert kept.limit is None


def test_a_chip_gives_times_and_a_limit(mesh):
    def exchange(x):
        return replicate(split(x, 0, "expert", mesh=mesh), mesh=mesh)

    report = inspect(exchange, placed(mesh, (64, 16), "expert"), chip="v3")
    (one,) = report.exchanges
    # 4096 bytes gathered by 4 devices, 2 x 2 chips without rings, links of 50 GB/s: 3/4 over 2.
    assert one.seconds == pytest.approx(4096 * 3 / 4 / (2 * 5e10))
    assert one.share == pytest.approx(one.seconds / report.cost.step_seconds)
    assert report.cost.collective_seconds == one.seconds
    assert (report.chip, report.memory.limit) == ("TPU v3 core", 16 * 2**30)


def test_jitted_lowered_and_compiled_give_the_same(mesh):
    def layer(x):
        return replicate(split(x * 2, 0, "data", mesh=mesh), mesh=mesh)

    x = placed(mesh, (8, 4), "data")
    report = inspect(layer, x)
    lowered = jax.jit(layer).lower(x)
    assert inspect(jax.jit(layer), x).values == report.values
    assert inspect(lowered).exchanges == report.exchanges
    compiled, again = inspect_lowered(lowered, title="layer")
    assert again.values == report.values
    assert again.compile_seconds > 0
    after = inspect_compiled(compiled, title="layer")
    assert [one.collective for one in after.exchanges] == [
        one.collective for one in report.exchanges
    ]
    # Names of operations still tell the annotation.
    assert [one.cause for one in after.exchanges] == [one.cause for one in report.exchanges]
    assert (after.memory, after.cost) == (report.memory, report.cost)
    assert after.notes == (
        "the compiler's steps could not be seen: no annotated values, and causes only where an "
        "operation's name tells",
    )


def test_nothing_is_left_in_the_temporary_directory(mesh, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inspect(lambda x: split(x, 0, "data", mesh=mesh), shaped(8, 4))
    assert list(tmp_path.iterdir()) == []


def test_the_compilation_cache_is_neither_read_nor_written(mesh, tmp_path):
    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        for _ in range(2):
            report = inspect(lambda x: split(x, 0, "data", mesh=mesh), shaped(8, 4))
            assert rows(report, "annotation")
        assert not list(tmp_path.glob("jit__lambda*"))
        assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 0.0
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_loops_over_data_are_noted(mesh):
    def until(x):
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c + 1, x)

    report = inspect(until, placed(mesh, (8,), "data"))
    line = until.__code__.co_firstlineno + 1
    assert report.notes == (
        f"how often the loop at test_inspector_inspect.py:{line} runs depends on data; "
        "it counts once",
    )


def refused(error, message, *args, **kwargs):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        inspect(*args, **kwargs)


def test_several_devices_and_no_mesh():
    refused(
        ValueError,
        "inspect: no mesh, and 8 devices; the program uses one of them. Pass mesh=, enter "
        "`jax.set_mesh(mesh)`, or give the arguments shardings",
        lambda x: x * 2,
        shaped(8),
    )


def test_arguments_without_a_shape_all_at_once(mesh):
    refused(
        TypeError,
        "inspect: 2 faults:\n"
        "  argument 1['w'] is 'abc' (str), which has no shape; give an array, a number or "
        "jax.ShapeDtypeStruct, or name it in static_argnums\n"
        "  argument mode is 'sum' (str), which has no shape; give an array, a number or "
        "jax.ShapeDtypeStruct, or name it in static_argnums",
        lambda x, params, mode: x,
        shaped(8),
        {"w": "abc"},
        kwargs={"mode": "sum"},
        mesh=mesh,
    )


def test_static_arguments_need_no_shape(mesh):
    report = inspect(lambda x, mode: x * len(mode), shaped(8), "abc", static_argnums=1, mesh=mesh)
    assert [row[0] for row in rows(report, "argument")] == ["x"]


def test_a_function_that_looks_at_values(mesh):
    refused(
        ValueError,
        "inspect: looks cannot be traced with these arguments: Attempted boolean conversion of "
        "traced array with shape bool[]. Name arguments that decide what is computed in "
        "static_argnums",
        looks,
        shaped(8),
        mesh=mesh,
    )


def looks(x):
    return x if x.sum() > 0 else -x


def test_unknown_chip_comes_before_the_compiler():
    refused(ValueError, "inspect: no figures for chip 'v7' (known: v3", looks, shaped(8), chip="v7")


def test_no_function(mesh):
    refused(
        TypeError,
        "inspect: int is no function; give a function, a jitted function, or what its lower() "
        "returned",
        3,
        mesh=mesh,
    )


def test_options_for_what_is_jitted_or_lowered_already(mesh):
    refused(
        ValueError,
        "inspect: donate_argnums, out_shardings given for looks, which is jitted already; give "
        "them to its jax.jit",
        jax.jit(looks),
        shaped(8),
        mesh=mesh,
        donate_argnums=0,
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )
    refused(
        ValueError,
        "inspect: a lowered function has its arguments and options already; give it alone",
        jax.jit(lambda x: x).lower(shaped(8)),
        shaped(8),
    )
