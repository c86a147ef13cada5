"""What the TPU compiler makes of the Table 1 model files, with their structure and small sizes.

On 8 v3 cores, in the compiler's own process. Sizes: 8 experts, 2 + 4 layers.
"""

import collections

import pytest

from gshard_train.precompiling.breakdown import breakdown
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.job import Job

MOE_LAYERS = 1 + 2
SMALL = (
    "NUM_EXPERTS = 8",
    "NUM_GROUPS = 16",
    "BATCH_SIZE = 32",
    "TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}",
    "config.TransformerConfig.num_encoder_layers = 2",
    "config.TransformerConfig.num_decoder_layers = 4",
    "config.TransformerConfig.source_vocab_size = 640",
    "config.TransformerConfig.target_vocab_size = 320",
    "config.TransformerConfig.embed = 128",
    "config.TransformerConfig.mlp = 256",
    "config.TransformerConfig.num_heads = 2",
    "config.TransformerConfig.head_dim = 64",
    # What exchanges nothing and takes two thirds of the compiler's time.
    "DROPOUT_RATE = 0.0",
    "config.TransformerConfig.second_expert = 'always'",
    "OPTIMIZER = @optimizer.sgd()",
    "optimizer.sgd.learning_rate = 0.1",
)


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as child:
        yield child


def _exchanges(compiler, model, mesh):
    """How often each kind of collective runs, and what the gathered values are for."""
    job = Job(
        gin_files=(f"gshard_train/configs/models/{model}.gin",),
        gin_bindings=(*SMALL, f"MESH_AXES = {mesh}"),
        topology="v3:2x2",
    )
    result = compiler.compile(job)
    assert result.fault is None, result.fault
    assert result.report is not None
    # The model's named scopes tell where the time goes.
    assert breakdown(result.report)["other"] < 0.05 * (result.report.cost.step_seconds or 0.0)
    times = collections.Counter()
    for one in result.report.exchanges:
        times[one.collective.kind] += one.times
    gathered = [e for e in result.report.exchanges if e.collective.kind == "all-gather"]
    return times, [e.collective.op_name for e in gathered]


@pytest.mark.slow
def test_two_all_to_alls_forward_and_two_backward_in_each_moe_layer_and_nothing_gathered(compiler):
    times, gathered = _exchanges(compiler, "moe_2048e_36l", {"data": 1, "expert": 8})
    assert times["all-to-all"] == 4 * MOE_LAYERS
    assert gathered == []


@pytest.mark.slow
def test_the_largest_model_gathers_its_split_dense_layers_and_no_experts(compiler):
    times, gathered = _exchanges(compiler, "moe_2048e_60l", {"data": 2, "expert": 4})
    assert times["all-to-all"] >= 4 * MOE_LAYERS  # the embedding's rows are exchanged too
    assert any("dense_feed_forward" in name for name in gathered)
    assert not any("experts" in name for name in gathered)
