"""Meshes that do not fit the function, programs that do not fit the chip."""

import jax
import jax.numpy as jnp
import pytest

from gshard_annotate import make_mesh, split
from gshard_annotate.inspector import diff, inspect, inspect_compiled, inspect_lowered
from gshard_annotate.inspector.entry_checks import told_when_too_large


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_mesh_other_than_that_of_the_annotations(mesh, refused):
    def layer(x):
        return split(x, 0, "data", mesh=mesh)

    other = make_mesh({"replica": 8})
    message = (
        "inspect: the mesh is replica=8, but {} is annotated over data=2, expert=4; give the mesh "
        "of its annotations, or annotate over this one"
    )
    with refused(message.format("layer")):
        inspect(layer, shaped(8, 4), mesh=other)
    with refused(message.format("the program")):
        inspect_lowered(jax.jit(layer).lower(shaped(8, 4)), mesh=other)
    assert inspect(lambda x: x * 2, shaped(8, 4), mesh=other).mesh == {"replica": 8}


@pytest.mark.parametrize(
    ("who", "call"),
    [
        ("inspect", lambda mesh: inspect(lambda x: x, shaped(8), mesh=mesh)),
        ("inspect_lowered", lambda mesh: inspect_lowered(lowered(), mesh=mesh)),
        ("inspect_compiled", lambda mesh: inspect_compiled(lowered().compile(), mesh=mesh)),
    ],
)
def test_what_is_no_mesh(refused, who, call):
    with refused(
        f"{who}: mesh is {{'data': 2}} (dict); give a jax.sharding.Mesh, as "
        "make_mesh({'data': 2}) returns",
        TypeError,
    ):
        call({"data": 2})
    with refused(
        f"{who}: mesh is 'data' (str); give a jax.sharding.Mesh, as make_mesh({{'data': 2}}) "
        "returns",
        TypeError,
    ):
        call("data")


def lowered():
    return jax.jit(lambda x: x).lower(shaped(8))


# As the compiler for TPUs says it.
TOO_LARGE = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
    "(18.92G) exceeds available HBM (15.48G)."
)


def test_a_program_that_does_not_fit_the_chip(mesh, refused):
    after = "; split more of it, recompute with jax.checkpoint, or take more devices"
    kind = jax.devices()[0].device_kind
    with (
        refused(
            f"inspect: step does not fit on a device of mesh data=2, expert=4 (8 {kind} devices): "
            f"HLO temporaries need 18.92G, its HBM has 15.48G{after}",
            MemoryError,
        ),
        told_when_too_large("step", mesh),
    ):
        raise jax.errors.JaxRuntimeError(f"{TOO_LARGE}\n  and a list of buffers")
    with (
        refused(
            f"inspect: the program does not fit on a device: out of this and that{after}",
            MemoryError,
        ),
        told_when_too_large("", None),
    ):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of this and that")


def test_the_compiler_s_error_stays_with_it_and_others_are_left_alone():
    error = jax.errors.JaxRuntimeError(TOO_LARGE)
    with pytest.raises(MemoryError) as caught, told_when_too_large("step", None):
        raise error
    assert caught.value.__cause__ is error
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match=r"^INTERNAL: else$"),
        told_when_too_large("step", None),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: else")


def test_diff_is_a_function_wherever_it_is_taken_from():
    import gshard_annotate

    report = inspect(lambda x: x, shaped(8), mesh=make_mesh({"data": 8}))
    assert gshard_annotate.diff is diff
    assert not diff(report, report)
