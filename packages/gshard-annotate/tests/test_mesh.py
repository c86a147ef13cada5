"""Meshes from axis names and sizes."""

import re
import subprocess
import sys

import jax
import pytest
from jax.sharding import AxisType

from gshard_annotate import make_mesh


def test_axes_in_the_order_given_all_auto():
    mesh = make_mesh({"data": 4, "model": 1, "expert": 2})
    assert tuple(mesh.shape.items()) == (("data", 4), ("model", 1), ("expert", 2))
    assert mesh.axis_types == (AxisType.Auto,) * 3


@pytest.mark.parametrize(("axes", "expert"), [({"data": 2, "expert": -1}, 4), ({"expert": -1}, 8)])
def test_minus_one_takes_what_is_left(axes, expert):
    assert make_mesh(axes).shape["expert"] == expert


def test_chosen_devices():
    mesh = make_mesh({"data": 1, "expert": 2}, devices=jax.devices()[5:7])
    assert sorted(device.id for device in mesh.devices.flat) == [5, 6]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (
            {"data": 2, "expert": 3},
            "make_mesh: axes data=2, expert=3 need 6 devices, 8 are present; change the sizes "
            "(-1 takes what is left), pass devices=, or cpu_devices= for virtual CPU devices",
        ),
        (
            {"data": -1, "expert": 3},
            "make_mesh: axes data=-1, expert=3 need a multiple of 3 devices, 8 are present; change "
            "the sizes (-1 takes what is left), pass devices=, or cpu_devices= for virtual CPU "
            "devices",
        ),
        (
            {"data": -1, "expert": -1},
            "make_mesh: axes are data=-1, expert=-1; give at least one axis, each of size 1 or "
            "more, at most one of size -1 (what is left)",
        ),
        (
            {"data": 0},
            "make_mesh: axes are data=0; give at least one axis, each of size 1 or more, at most "
            "one of size -1 (what is left)",
        ),
        (
            {},
            "make_mesh: axes are no axes; give at least one axis, each of size 1 or more, at most "
            "one of size -1 (what is left)",
        ),
    ],
)
def test_sizes_that_do_not_fit(axes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_mesh(axes)


def test_cpu_devices_may_be_asked_for_again():
    assert make_mesh({"data": 8}, cpu_devices=8).size == 8


def test_cpu_devices_after_another_number_started():
    jax.devices()
    message = (
        "make_mesh: cpu_devices=4, but JAX already runs with 8 CPU devices; make the mesh before "
        "the first call that uses devices, or start the process with JAX_NUM_CPU_DEVICES=4"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        make_mesh({"data": 4}, cpu_devices=4)


def test_no_cpu_devices():
    with pytest.raises(ValueError, match=r"^make_mesh: cpu_devices is 0; it must be at least 1$"):
        make_mesh({"data": 1}, cpu_devices=0)


def test_cpu_devices_in_a_fresh_process():
    program = (
        "from gshard_annotate import make_mesh\n"
        "mesh = make_mesh({'data': 2, 'expert': 3}, cpu_devices=6)\n"
        "import jax; print(jax.device_count(), jax.default_backend())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "6 cpu\n", done.stderr


def ids(mesh):
    return [[device.id for device in row] for row in mesh.devices]


def test_device_order():
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    mesh = make_mesh({"data": 2, "expert": -1}, device_order=order)
    assert ids(mesh) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert mesh.axis_types == (AxisType.Auto,) * 2
    assert ids(make_mesh({"data": 2, "expert": 4}, device_order=[order[:4], order[4:]])) == ids(
        mesh
    )


def test_device_order_that_is_none(refused):
    with refused(
        "make_mesh: device_order is [0, 1, 2, 3, 4, 5, 5, 9]; give the id of each device once "
        "(repeated: [5], missing: [6, 7], unknown: [9])"
    ):
        make_mesh({"data": 8}, device_order=[0, 1, 2, 3, 4, 5, 5, 9])


class SliceDevice:
    """Stands in for a device of a machine of two slices."""

    platform = device_kind = "cpu"

    def __init__(self, number):
        self.id, self.slice_index, self.process_index = number, number % 2, number % 2

    def __repr__(self):
        return f"device {self.id}"


def test_slices():
    devices = [SliceDevice(number) for number in range(8)]
    mesh = make_mesh({"data": 4, "expert": 2}, devices=devices, slices={"data": 2})
    # The first half of the data axis lies on one slice, the second half on the other.
    slices = [[device.slice_index for device in row] for row in mesh.devices]
    assert slices == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert sorted(device.id for device in mesh.devices.flat) == list(range(8))


def test_slices_that_do_not_fit(refused):
    with refused(
        "make_mesh: 3 faults:\n"
        "  slices has 'dat', which is no axis; did you mean 'data'?\n"
        "  axis 'expert' of size 2 cannot go over 3 slices (2 % 3 = 2)\n"
        "  slices dat=2, expert=3 make 6, but the devices lie on 1; their product must be that"
    ):
        make_mesh({"data": 4, "expert": 2}, slices={"dat": 2, "expert": 3})
