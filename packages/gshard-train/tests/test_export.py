"""An export is whole by itself: it translates without this package and comes back bit for bit."""

import io
import json
import os
import re
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file, save_file

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio

from gshard_annotate import DEFAULT_RULES
from gshard_train import exporting, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.decode import BeamSearch, Sampling
from gshard_train.decoding.decoder import Decoder
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, prepare
from gshard_train.exported.serving import Program, exported_program
from gshard_train.measuring.held_out import Example
from gshard_train.optimizer import adam

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

PIECES = {"inputs": 22, "targets": 18}
TEXT = ["a bad bee", "add a bed", "dead bees", "bade", ""]
SEARCH = BeamSearch(beams=2)


@pytest.fixture(scope="module")
def vocabulary_files(tmp_path_factory):
    """A SentencePiece model for each side."""
    folder, files = tmp_path_factory.mktemp("vocabulary"), {}
    for side, size in PIECES.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT[:4] * 9),
            model_writer=model,
            vocab_size=size,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
        )
        files[side] = folder / f"{side}.sp"
        files[side].write_bytes(model.getvalue())
    return files


@pytest.fixture(scope="module")
def experiment(tiny, params, one_device, vocabulary_files, tmp_path_factory) -> Experiment:
    """A run with a checkpoint whose translations hang on the source."""
    seqio.TaskRegistry.add(
        "exported",
        source=seqio.FunctionDataSource(lambda split, shuffle_files: None, splits=["test"]),
        preprocessors=[],
        output_features={
            side: seqio.Feature(seqio.SentencePieceVocabulary(str(file)))
            for side, file in vocabulary_files.items()
        },
    )
    made = Experiment(
        model_dir=str(tmp_path_factory.mktemp("run")),
        make_mesh=lambda: one_device,
        model=tiny,
        optimizer=adam(1e-3),
        make_feed=None,  # pyright: ignore[reportArgumentType]
        mixture_or_task_name="exported",
        task_feature_lengths={"inputs": 9, "targets": 7},
        batch_size=8,
    )
    with Checkpointer(made.model_dir) as checkpointer:
        checkpointer.save(3, {"params": params}, {"next_index": 3})
    return made


@pytest.fixture(scope="module")
def params(model):
    """Parameters whose next token hangs on the source and is seldom the end."""
    output_MV = np.random.default_rng(3).normal(size=model[1]["output"].shape)
    output_MV[:, 1] *= 0.1
    return model[1] | {"output": jax.numpy.asarray(output_MV, jax.numpy.float32)}


@pytest.fixture(scope="module")
def decode(experiment):
    """This package's translations of the text, by parameters."""
    vocabulary = seqio.SentencePieceVocabulary(str(experiment.path("export", "inputs.model")))
    tokens = [[*vocabulary.encode(line), 1] for line in TEXT]
    cut = [row if len(row) <= 9 else [*row[:8], 1] for row in tokens]
    decoder = Decoder(experiment, prepare(experiment), SEARCH, batch_size=8)
    examples = [Example(np.array(row, np.int32), "", "") for row in cut]
    return lambda params: decoder.decode(params, examples, progress=False)


@pytest.fixture(scope="module")
def exported(experiment):
    """The export of the checkpoint, beside the run."""
    program = Program(batch_size=3, search=SEARCH, platforms=("cpu", "tpu"))
    return exporting.export(experiment, program=program)


SCRIPT = """
import runpy, sys
runpy.run_path("translate.py", run_name="__main__")
foreign = [name for name in sys.modules if name.split("_")[0] in
           ("gshard", "flax", "optax", "orbax", "seqio", "tensorflow", "safetensors")]
print(foreign, file=sys.stderr)
"""


@pytest.mark.slow
def test_an_export_translates_without_this_package(params, exported, decode):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=exported,
        env=environment,
        input="".join(f"{line}\n" for line in TEXT),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    target = seqio.SentencePieceVocabulary(str(exported / "targets.model"))
    expected = [target.decode(found.tokens) for found in decode(params)]
    assert done.stdout.splitlines() == expected
    assert len(set(done.stdout.splitlines())) > 2


def test_an_export_says_what_it_is(experiment, exported):
    assert {path.name for path in exported.iterdir()} == {
        "README.md",
        "config.json",
        "inputs.model",
        "model.safetensors",
        "targets.model",
        "translate.py",
        "translate.stablehlo",
    }
    config = json.loads((exported / "config.json").read_text())
    assert (config["checkpoint_step"], config["layers"]) == (3, "stacked")
    assert config["program"]["platforms"] == ["cpu", "tpu"]
    assert config["parameters"] == sum(
        tensor.size for tensor in load_file(exported / "model.safetensors").values()
    )
    model = exporting.read_config(exported)
    assert exporting.model_fields(model) == exporting.model_fields(experiment.model)
    assert "for cpu, tpu; 3 sentences a call" in (exported / "README.md").read_text()


@pytest.mark.parametrize("split_layers", [False, True])
def test_parameters_come_back_and_translate_to_the_last_bit(
    split_layers, experiment, params, exported, decode, tmp_path, mesh
):
    model = prepare(experiment).model
    output = exporting.export(
        experiment,
        output_dir=str(tmp_path / "x"),
        split_layers=split_layers,
        max_file_bytes=9000,
        program=None,
    )
    names = {name for path in output.glob("*.safetensors") for name in load_file(path)}
    layer = "encoder.1.second.attention.wq" if split_layers else "encoder.second.attention.wq"
    assert layer in names
    index = json.loads((output / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == names
    assert len(set(index["weight_map"].values())) > 3
    shardings = state.shardings(model, adam(1e-3), DEFAULT_RULES, mesh).params
    back = exporting.load_parameters(output, model, shardings=shardings)
    jax.tree.map(np.testing.assert_array_equal, back, params)
    # The scores are sums of logits.
    assert decode(exporting.load_parameters(output, model)) == decode(params)


def test_tensors_that_do_not_fit_are_all_named(experiment, exported, tmp_path):
    tensors = load_file(exported / "model.safetensors")
    tensors["decoder_norm.bias"] = tensors.pop("decoder_norm.scale")
    tensors["output"] = tensors["output"][:, :5].copy()
    save_file(tensors, tmp_path / "model.safetensors")
    model = prepare(experiment).model
    with pytest.raises(UserError) as error:
        exporting.load_parameters(tmp_path, model)
    first, *rest = str(error.value).splitlines()
    assert "holds the parameters of another model: 3 tensors differ" in first
    assert rest == [
        "  decoder_norm.bias float32[12] is not in the model",
        "  decoder_norm.scale float32[12] is not in the files",
        "  output is float32[12, 5] in the files and float32[12, 19] in the model",
    ]
    with pytest.raises(UserError, match=r"holds no \*\.safetensors; give a directory"):
        exporting.load_parameters(tmp_path / "none", model)
    (tmp_path / "model.safetensors").write_text("{}")
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as safetensors: "):
        exporting.load_parameters(tmp_path, model)


def test_what_cannot_be_exported_is_said_and_nothing_written(experiment, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    wrong = re.escape(f"output_dir='{tmp_path}' is there and no export; give another")
    with pytest.raises(UserError, match=wrong):
        exporting.export(experiment, output_dir=str(tmp_path), program=None)
    with pytest.raises(UserError, match="there is no checkpoint 5 in"):
        exporting.export(
            experiment, output_dir=str(tmp_path / "x"), checkpoint_step=5, program=None
        )
    exporting.export(experiment, output_dir=str(tmp_path / "x"), program=None, dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match=r"batch_size=0 must .*; platforms: gpu must be of"):
        Program(batch_size=0, platforms=("cpu", "gpu"))


def test_a_program_that_draws_is_made_for_every_platform(experiment):
    program = Program(search=Sampling(top_k=3, top_p=0.9), platforms=("cpu", "cuda", "tpu"))
    model = prepare(experiment).model
    made = exported_program(experiment, model, program, split_layers=True)
    assert made.platforms == ("cpu", "cuda", "tpu")
    assert made.nr_devices == 1
    assert [leaf.shape for leaf in made.out_avals] == [(8, 7), (8,), (8,)]
