"""Which layouts a search tries, in which order, and what it makes of their programs."""

import dataclasses

import jax
import pytest

from gshard_annotate import make_mesh
from gshard_train import layouts
from gshard_train.experiment import Experiment
from gshard_train.models.config import TransformerConfig
from gshard_train.precompiling.layout import Layout


def _experiment(**model) -> Experiment:
    return Experiment(
        model_dir="/tmp/none",
        make_mesh=lambda axes=None, devices=None: make_mesh(axes or {}, devices=devices),
        model=TransformerConfig(source_vocab_size=16, target_vocab_size=24, **model),
        optimizer=lambda names: None,
        make_feed=lambda **_: None,
        mixture_or_task_name="a",
        task_feature_lengths={"inputs": 8, "targets": 8},
        batch_size=8,
    )


def test_layout_changes_what_it_says_and_nothing_else():
    experiment = _experiment()
    assert Layout().applied(experiment) == experiment
    layout = Layout(rules="fsdp", num_groups=64, remat="full", microbatches=2, dispatch="gather")
    changed = layout.applied(experiment)
    assert changed.rules == layouts.fsdp()
    assert changed.microbatches == 2
    assert changed.model == dataclasses.replace(
        experiment.model, num_groups=64, remat="full", dispatch="gather"
    )
    assert changed.make_mesh is experiment.make_mesh


def test_layout_gives_the_mesh_its_axes_on_the_devices_of_the_caller():
    made = Layout(mesh={"data": 1, "expert": 1, "stage": 1}).applied(_experiment()).make_mesh
    assert dict(made(devices=jax.devices()[:1]).shape) == {"data": 1, "expert": 1, "stage": 1}


def test_layout_that_the_model_cannot_have_is_refused():
    with pytest.raises(ValueError, match="num_groups=0 must be an integer of at least 1"):
        Layout(num_groups=0).applied(_experiment())
