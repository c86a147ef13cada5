"""What the TPU compiler makes of the Table 1 model files, with their structure and small sizes.

On 8 v3 cores, in the compiler's own process. Sizes: 8 experts, 2 + 4 layers or 2 + 2.
"""

import pytest

from gshard_annotate.inspector.chips import CHIPS
from gshard_train.planning.floor import Floors
from gshard_train.precompiling.breakdown import breakdown
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.configuration import configured
from gshard_train.precompiling.job import Job
from gshard_train.precompiling.verdict import device_memory

SMALL = (
    "NUM_EXPERTS = 8",
    "NUM_GROUPS = 16",
    "BATCH_SIZE = 16",
    "TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}",
    "config.TransformerConfig.num_encoder_layers = 2",
    "config.TransformerConfig.source_vocab_size = 128",
    "config.TransformerConfig.target_vocab_size = 128",
    "config.TransformerConfig.embed = 64",
    "config.TransformerConfig.mlp = 128",
    "config.TransformerConfig.num_heads = 1",
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


def _gathered(compiler, model, mesh, decoder_layers):
    """What is gathered, and for what; the rest is the same for all models."""
    job = Job(
        gin_files=(f"gshard_train/configs/models/{model}.gin",),
        gin_bindings=(
            *SMALL,
            f"MESH_AXES = {mesh}",
            f"config.TransformerConfig.num_decoder_layers = {decoder_layers}",
        ),
        topology="v3:2x2",
    )
    result = compiler.compile(job)
    assert result.fault is None, result.fault
    report = result.report
    # The model's named scopes tell where the time goes.
    assert breakdown(report)["other"] < 0.05 * report.cost.step_seconds
    experiment = configured(job).experiment
    floor = Floors(experiment).of(experiment, mesh, CHIPS["v3"])
    assert floor.seconds < report.cost.step_seconds
    assert floor.bytes < (device_memory(result, result.facts).peak or 0)
    # Two forward and two backward in each MoE layer: the slots' rows, there and back.
    moved = [one for one in report.exchanges if "capacity" in one.collective.op_name]
    assert {one.collective.kind for one in moved} == {"all-to-all"}
    assert sum(one.times for one in moved) == 4 * (1 + decoder_layers // 2)
    gathers = [one for one in report.exchanges if one.collective.kind == "all-gather"]
    names = [one.collective.op_name for one in gathers]
    assert not any("experts" in name for name in names)
    return names


@pytest.mark.slow
def test_model_of_2048_experts_gathers_nothing(compiler):
    assert _gathered(compiler, "moe_2048e_36l", {"data": 1, "expert": 8}, 4) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "mesh"),
    [("moe_2048e_60l", {"data": 2, "expert": 4}), ("moe_128e_36l", {"data": 1, "expert": 8})],
)
def test_models_with_split_dense_layers_gather_those_alone(compiler, model, mesh):
    gathered = _gathered(compiler, model, mesh, 2)
    assert any("dense_feed_forward" in name for name in gathered)
