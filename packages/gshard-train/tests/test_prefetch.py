"""Batches read ahead of those that are given out."""

import threading

import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_train.errors import UserError
from gshard_train.prefetch import Prefetch


class Counting:
    """Batch i holds i; ends before `end`."""

    def __init__(self, end=100):
        self.next_index, self.end = 0, end
        self.read = threading.Semaphore(0)

    def __next__(self):
        if self.next_index == self.end:
            raise StopIteration
        self.next_index += 1
        self.read.release()
        return {"x": np.full((8, 3), self.next_index - 1)}

    def get_state(self):
        return {"next_index": self.next_index}


@pytest.fixture
def rows(mesh):
    return NamedSharding(mesh, PartitionSpec(("data", "expert")))


def test_batches_come_in_order_on_the_devices_and_the_position_is_theirs(rows):
    feed = Counting()
    with Prefetch(feed, rows, ahead=2) as batches:
        assert batches.get_state() == {"next_index": 0}
        for number in range(5):
            batch = next(batches)
            assert batch["x"].sharding == rows
            assert batch["x"].tolist() == [[number] * 3] * 8
            assert batches.get_state() == {"next_index": number + 1}


def test_the_feed_is_read_ahead_and_no_further(rows):
    feed = Counting()
    with Prefetch(feed, rows, ahead=3) as batches:
        next(batches)
        for _ in range(4):
            assert feed.read.acquire(timeout=30)
    assert feed.next_index == 4
    assert batches.get_state() == {"next_index": 1}


def test_shapes_are_those_of_the_next_batch_which_is_still_to_come(rows):
    with Prefetch(Counting(), rows) as batches:
        assert batches.shapes()["x"].shape == (8, 3)
        assert batches.shapes()["x"].sharding == rows
        assert next(batches)["x"][0, 0] == 0


def test_a_feed_that_ends_is_said(rows):
    with Prefetch(Counting(end=2), rows) as batches:
        next(batches)
        next(batches)
        with pytest.raises(
            UserError, match=r"feed ended at {'next_index': 2}; a feed for training"
        ):
            next(batches)


def test_an_error_of_the_feed_is_raised_where_its_batch_was_wanted(rows):
    class Broken(Counting):
        def __next__(self):
            if self.next_index == 1:
                raise OSError("disk gone")
            return super().__next__()

    with Prefetch(Broken(), rows) as batches:
        next(batches)
        with pytest.raises(OSError, match="disk gone"):
            next(batches)
