"""Files of translations: whole or not there, and going on after a stop."""

import dataclasses
import json
import logging
import re
import warnings

import jax
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train import experiment, inference
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.trained import restore_params
from gshard_train.data import SeqioFeed
from gshard_train.decode import BeamSearch
from gshard_train.decoding.decoder import Decoder, Hypothesis
from gshard_train.decoding.kept_hypotheses import FILE_NAME
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment
from gshard_train.interruption import Interrupted
from gshard_train.optimizer import adam

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = {"inputs": 6, "targets": 5}
WORDS = ["red", "green", "blue", "black", "white"]


def register(name: str, marks: str, splits: tuple[str, ...]) -> None:
    """A task whose source spells the target's letters behind a mark."""
    rows = [(mark + word[:3], word[:4]) for mark in marks for word in WORDS]
    features = {
        side: seqio.Feature(seqio.ByteVocabulary(), add_eos=True) for side in ("inputs", "targets")
    }
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(
                {"inputs": [a for a, _ in rows], "targets": [b for _, b in rows]}
            ),
            splits=splits,
            num_input_examples=dict.fromkeys(splits, len(rows)),
        ),
        preprocessors=[
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features,
    )


register("infer_ab", "ab", ("validation",))
register("infer_c", "c", ("validation", "test"))
seqio.MixtureRegistry.add("infer", ["infer_ab", "infer_c"], default_rate=1.0)


class Echo(Decoder):
    """Says how long each source is, and stops after some batches where that is asked for."""

    stop_after = None
    decoded = 0

    def _program(self, experiment, prepared):
        return None

    def decode_batches(self, params, examples, *, numbers=None, done=()):
        for count, batch in enumerate(self.plan(examples)):
            if all(place in done for place in batch.places):
                continue
            if count == Echo.stop_after:
                raise KeyboardInterrupt
            Echo.decoded += len(batch.places)
            yield {
                place: Hypothesis([2 + len(examples[place].tokens_T)], place / 7, False)
                for place in batch.places
            }


@pytest.fixture(scope="module")
def run_dir(model, tmp_path_factory):
    """Two checkpoints of a model that has not learnt anything."""
    path, params = tmp_path_factory.mktemp("run"), jax.tree.map(np.asarray, model[1])
    for table in (params["source_embedding"], params["target_embedding"]):
        table["tokens"] = np.resize(table["tokens"], (384, 12))
    params["output"] = np.resize(params["output"], (12, 384))
    with Checkpointer(path) as checkpointer:
        for step in (4, 7):
            checkpointer.save(step, {"params": params}, {"next_index": step})
    return path


@pytest.fixture
def trained(tiny, one_device, run_dir) -> Experiment:
    """The run they belong to."""
    return Experiment(
        model_dir=str(run_dir),
        make_mesh=lambda: one_device,
        model=dataclasses.replace(tiny, source_vocab_size=384, target_vocab_size=384),
        optimizer=adam(1e-3),
        make_feed=SeqioFeed,
        mixture_or_task_name="infer",
        task_feature_lengths=LENGTHS,
        batch_size=8,
    )


@pytest.fixture
def echo(monkeypatch, trained) -> type[Echo]:
    """Decoding without a model."""
    prepared = experiment.prepare(trained)
    params = restore_params(Checkpointer(trained.model_dir), trained, prepared, 7)
    monkeypatch.setattr(inference, "Decoder", Echo)
    monkeypatch.setattr(inference, "prepare", lambda _: prepared)
    monkeypatch.setattr(inference, "restore_params", lambda *_: params)
    monkeypatch.setattr(Echo, "stop_after", None)
    monkeypatch.setattr(Echo, "decoded", 0)
    return Echo


def translate(run: Experiment, output, **arguments):
    arguments = {"splits": ["validation"], "batch_size": 8, **arguments}
    return inference.infer(run, output_dir=str(output), **arguments)


def lines(folder) -> dict[str, list[dict]]:
    return {
        path.stem: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def test_every_example_gets_a_line_and_the_manifest_counts_them(trained, tmp_path, echo):
    translate(trained, tmp_path, search=BeamSearch(beams=2))
    found = lines(tmp_path / "validation")
    assert {task: len(rows) for task, rows in found.items()} == {"infer_ab": 10, "infer_c": 5}
    keys = {"id", "source", "reference", "prediction", "score", "truncated"}
    assert found["infer_c"][3].keys() == keys
    assert (found["infer_c"][3]["id"], found["infer_c"][3]["source"]) == (3, "cbla")
    manifest = json.loads((tmp_path / "validation" / "manifest.json").read_text())
    assert manifest.pop("fingerprint")["search"]["kind"] == "BeamSearch"
    assert manifest == {
        "tasks": {"infer_ab": 10, "infer_c": 5},
        "checkpoint_step": 7,
        "decoder": {"beams": 2, "alpha": 0.8, "kept": "reordered"},
        "split": "validation",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["validation"]
    assert not (tmp_path / "validation" / FILE_NAME).exists()


def test_a_run_that_was_stopped_goes_on_where_it_was(trained, tmp_path, echo):
    whole = lines(translate(trained, tmp_path / "whole") / "validation")
    echo.stop_after, echo.decoded = 1, 0
    told = r"interrupted with 8 of 15 sentences decoded for .*validation; the same command goes on"
    with pytest.raises(Interrupted, match=told):
        translate(trained, tmp_path / "stopped")
    kept = tmp_path / "stopped" / "validation.new" / FILE_NAME
    assert len(kept.read_text().splitlines()) == 1 + 8
    kept.write_text(kept.read_text() + "[12, [4, 5], 0.1")  # killed while it wrote
    echo.stop_after, echo.decoded = None, 0
    translate(trained, tmp_path / "stopped")
    assert echo.decoded == 7
    assert lines(tmp_path / "stopped" / "validation") == whole
    assert not kept.parent.exists()


def test_what_hangs_on_something_else_is_decoded_anew(trained, tmp_path, echo, caplog):
    echo.stop_after = 1
    with pytest.raises(KeyboardInterrupt):
        translate(trained, tmp_path)
    echo.stop_after, echo.decoded = None, 0
    with caplog.at_level(logging.WARNING):
        translate(trained, tmp_path, search=BeamSearch(beams=3), checkpoint_step=4)
    assert echo.decoded == 15
    assert "8 translations of an earlier run are not used" in caplog.text
    assert "checkpoint_step was 7 and is 4; search was {'kind': 'BeamSearch'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        translate(trained, tmp_path, search=BeamSearch(beams=3), checkpoint_step=4, batch_size=16)
    assert echo.decoded == 15
    assert "validation is there already, decoded from the same" in caplog.text
    translate(trained, tmp_path)
    assert echo.decoded == 30


def test_several_checkpoints_have_a_directory_each(trained, tmp_path, echo):
    translate(trained, tmp_path / "all", checkpoint_step="all")
    translate(trained, tmp_path / "one", checkpoint_step=[4], num_examples=3)
    for folder, steps, rows in (("all", [4, 7], 15), ("one", [4], 6)):
        assert {path.name for path in (tmp_path / folder).iterdir()} == {
            f"step_{step}" for step in steps
        }
        for step in steps:
            found = lines(tmp_path / folder / f"step_{step}" / "validation")
            assert sum(map(len, found.values())) == rows


def test_experts_of_each_language_lie_beside_the_translations(trained, tmp_path, echo, monkeypatch):
    def collect(run, prepared, params, tasks, *, batch_size, language_of):
        return {"languages": {language_of(task.task): batch_size for task in tasks}}

    monkeypatch.setattr(inference.expert_languages, "collect", collect)
    translate(trained, tmp_path, num_examples=2)
    assert not (tmp_path / "validation" / "experts.json").exists()
    for _ in range(2):
        translate(trained, tmp_path, num_examples=2, language_of=lambda task: task[6:])
        assert echo.decoded == 8
    found = json.loads((tmp_path / "validation" / "experts.json").read_text())
    assert found == {"languages": {"ab": 8, "c": 8}}


def test_a_model_without_experts_is_done_without_a_file_of_them(trained, tmp_path, echo):
    dense = dataclasses.replace(trained, model=dataclasses.replace(trained.model, num_experts=0))
    for _ in range(2):
        translate(dense, tmp_path, num_examples=2, language_of=lambda task: task)
        assert echo.decoded == 4
    assert not (tmp_path / "validation" / "experts.json").exists()


def test_what_a_stopped_run_wrote_of_other_tasks_is_not_kept(trained, tmp_path, echo):
    stale = tmp_path / "validation.new"
    stale.mkdir()
    for name in ("infer_old.jsonl", "experts.json"):
        (stale / name).write_text("{}\n")
    folder = translate(trained, tmp_path) / "validation"
    assert {path.name for path in folder.iterdir()} == {
        "infer_ab.jsonl",
        "infer_c.jsonl",
        "manifest.json",
    }


def test_what_training_alone_has_is_no_fault_of_reading(trained, monkeypatch):
    monkeypatch.setattr("gshard_train.state.HOST_MEMORY", "far_away")
    training = dataclasses.replace(trained, microbatches=3, offload_optimizer=True)
    with pytest.raises(UserError, match=r"in 3 microbatches(.|\n)*offload_optimizer=True needs"):
        experiment.prepare(training)
    found = experiment.for_reading(training, 16)
    experiment.prepare(found)
    assert found == dataclasses.replace(trained, batch_size=16)


def test_tasks_without_a_split_are_named_and_may_be_left_out(trained, tmp_path, echo, caplog):
    with pytest.raises(UserError, match=r"split 'test' is missing in 1 of 2 tasks \(infer_ab\)"):
        translate(trained, tmp_path, splits=["test"])
    with caplog.at_level(logging.WARNING):
        translate(trained, tmp_path, splits=["test"], leave_out_lacking=True)
    assert "infer_ab" in caplog.text
    assert list(lines(tmp_path / "test")) == ["infer_c"]


def test_a_dry_run_reads_and_compiles_and_writes_nothing(
    trained, tmp_path, echo, monkeypatch, caplog
):
    compiled = []
    monkeypatch.setattr(Echo, "compile", lambda self: compiled.append(self.batch_size))
    with caplog.at_level(logging.INFO):
        translate(trained, tmp_path / "dry", dry_run=True)
    assert compiled == [8]
    assert "validation: 2 tasks, 15 sentences" in caplog.text
    assert not (tmp_path / "dry").exists()


def test_faults_leave_nothing_behind(trained, tmp_path):
    with pytest.raises(UserError, match=r"there is no checkpoint 8, 9 in .*; there is 4, 7"):
        translate(trained, tmp_path / "new", checkpoint_step=[8, 7, 9])
    with pytest.raises(UserError, match="checkpoint_step='al' must be a step, a list of steps"):
        translate(trained, tmp_path / "new", checkpoint_step="al")
    with pytest.raises(UserError, match=r"splits='test' must be .*'test',\)\nnum_examples=0 must"):
        translate(trained, tmp_path / "new", splits="test", num_examples=0)
    with pytest.raises(UserError, match="batch_size=12 cannot be divided by the 8 parts"):
        translate(trained, tmp_path / "new", batch_size=12)
    with pytest.raises(UserError, match=re.escape("MIXTURE_OR_TASK_MODULE='no.such' cannot be")):
        translate(dataclasses.replace(trained, mixture_or_task_module="no.such"), tmp_path / "new")
    empty = dataclasses.replace(trained, model_dir=str(tmp_path / "empty"))
    with pytest.raises(UserError, match="empty holds no checkpoint; train first"):
        translate(empty, tmp_path / "new")
    assert not (tmp_path / "new").exists()
