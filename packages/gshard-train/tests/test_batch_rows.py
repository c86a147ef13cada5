"""Which rows of a batch the devices of a process hold, here of processes that are made up."""

import jax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_train.batch_rows import Share, own_share
from gshard_train.errors import UserError


class OfProcess:
    """The sharding as process `index` of two sees it, with four of eight devices."""

    def __init__(self, axes, split, index):
        mesh = jax.make_mesh(tuple(axes.values()), tuple(axes))
        self.mesh, self.spec = mesh, PartitionSpec(split)
        self._whole = NamedSharding(mesh, self.spec)
        self._devices = jax.devices()[4 * index : 4 * index + 4]

    def addressable_devices_indices_map(self, shape):
        every = self._whole.devices_indices_map(shape)
        return {device: every[device] for device in self._devices}


@pytest.mark.parametrize(
    ("axes", "shares"),
    [
        ({"data": 2, "expert": 4}, [(0, 2), (1, 2)]),
        ({"data": 4, "expert": 1, "model": 2}, [(0, 2), (1, 2)]),
        ({"data": 1, "expert": 1, "model": 8}, [(0, 1), (0, 1)]),  # all hold all rows
        ({"stage": 2, "data": 2, "expert": 2}, [(0, 1), (0, 1)]),
    ],
)
def test_a_process_reads_the_rows_that_its_devices_hold(axes, shares):
    found = [own_share(OfProcess(axes, ("data", "expert"), index)) for index in (0, 1)]
    assert found == [Share(*share) for share in shares]


def test_rows_that_are_no_block_are_refused():
    sharding = OfProcess({"expert": 4, "data": 2}, ("data", "expert"), 0)
    expected = (
        r"on the mesh \(expert 4 x data 2\) the devices of process 0 hold rows of the batch that "
        r"are no block, .* order in which the batch is split, \('data', 'expert'\), before all"
    )
    with pytest.raises(UserError, match=expected):
        own_share(sharding)
