"""Evaluation on seqio tasks against seqio's own Evaluator and a naive loop over examples."""

import dataclasses
import json
import os
import re
import shutil
import threading
import time
import types
import warnings
from typing import NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train import evaluating, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.trained import restore_params
from gshard_train.data import SeqioFeed
from gshard_train.decode import BeamSearch
from gshard_train.errors import UserError
from gshard_train.evaluation import Evaluation
from gshard_train.experiment import Experiment, prepare
from gshard_train.measuring import expert_languages, task_metrics
from gshard_train.measuring import files as evaluation_files
from gshard_train.measuring.held_out import Example, read_splits
from gshard_train.optimizer import adam

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = {"inputs": 6, "targets": 5}
WORDS = ["red", "green", "blue", "black", "white"]
SEARCH = BeamSearch(beams=2)


def alike(targets, predictions):
    """A metric of predictions whose value shows order and postprocessing."""
    pairs = zip(targets, predictions, strict=True)
    return {"alike": sum(i * len(t) + len(p) for i, (t, p) in enumerate(pairs)), "n": len(targets)}


def first_score(targets, scores):
    """A metric of scores whose value shows their order."""
    weights = np.arange(1, len(targets) + 1)
    return {"weighted": float(np.dot(weights, scores)), "n_scores": len(targets)}


def with_scores(targets, predictions, aux_values):
    """A metric of predictions and their scores, with a value that is no number."""
    kept = seqio.metrics.Text(predictions[-1])
    return {"beam": float(np.mean(aux_values["scores"])), "text": kept, "half": len(targets) / 2}


@flax.struct.dataclass
class Longest(seqio.metrics.Metric):
    """A metric that is no function: the longest prediction in tokens, its end included."""

    model_output_type: seqio.metrics.ModelOutputType = seqio.metrics.ModelOutputType.PREDICTION
    tokens: int = 0

    @classmethod
    def from_model_output(cls, inputs, model_output, features, *_):
        return cls(tokens=int((np.asarray(model_output) > 0).sum(1).max()))

    def compute(self):
        return {"longest": self.tokens}


def register(name: str, marks: str, metric_fns: list, *, metric_objs=()) -> None:
    """A task whose source spells the target's letters behind a mark."""
    rows = [(mark + word[:3], word[:4]) for mark in marks for word in WORDS]
    feature = seqio.Feature(seqio.ByteVocabulary(), add_eos=True)

    def read(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices(
            {"inputs": [a for a, _ in rows], "targets": [b for _, b in rows]}
        )

    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(read, splits=["train", "validation"]),
        preprocessors=[
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": feature, "targets": feature},
        postprocess_fn=lambda text, example, is_target: text.upper() + "." * is_target,
        metric_fns=metric_fns,
        metric_objs=metric_objs,
    )


register("eval_ab_en", "ab", [alike, first_score])
register("eval_cd_en", "c", [with_scores], metric_objs=[Longest])
register("eval_ef_en", "d", [])
seqio.MixtureRegistry.add("eval", ["eval_ab_en", "eval_cd_en", "eval_ef_en"], default_rate=1.0)


@pytest.fixture(scope="module")
def experiment(tiny, tmp_path_factory) -> Experiment:
    """A model that has not learnt anything, with checkpoints."""
    model = dataclasses.replace(tiny, source_vocab_size=384, target_vocab_size=384)
    folder = tmp_path_factory.mktemp("eval")
    experiment = Experiment(
        model_dir=str(folder),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=model,
        optimizer=adam(1e-3),
        make_feed=SeqioFeed,
        mixture_or_task_name="eval",
        task_feature_lengths=LENGTHS,
        batch_size=8,
    )
    made = state.create(
        state.abstract_model(model), adam(1e-3), DEFAULT_RULES, experiment.make_mesh(), seed=0
    )
    with Checkpointer(folder) as checkpointer:
        for step in (3, 7):
            checkpointer.save(step, made, {"next_index": step})
    return experiment


@pytest.fixture(scope="module")
def prepared(experiment):
    return prepare(experiment)


@pytest.fixture(scope="module")
def params(experiment, prepared):
    return restore_params(Checkpointer(experiment.model_dir), experiment, prepared, 7)


@pytest.fixture(scope="module")
def evaluator(experiment, prepared):
    return Evaluation(search=SEARCH).open(experiment, prepared)


@pytest.fixture(scope="module")
def scalars(evaluator, params):
    return evaluator(7, params)


class Naive(NamedTuple):
    """All 20 examples as one batch on one device, and log p of each target token in numpy."""

    rows: list
    log_p: list[np.ndarray]
    correct: list[np.ndarray]
    load_NE: np.ndarray


@pytest.fixture(scope="module")
def naive(experiment, prepared, params, one_device) -> Naive:
    tasks = read_splits("eval", "validation", LENGTHS)
    rows = [example.row for task in tasks for example in task.examples]
    source, targets = np.zeros((24, 6), np.int32), np.zeros((24, 5), np.int32)
    for i, row in enumerate(rows):
        source[i, : len(row["inputs"])] = row["inputs"]
        targets[i, : len(row["targets"])] = row["targets"]
    labels = jnp.array([0] * 10 + [1] * 5 + [2] * 5 + [-1] * 4)

    @jax.jit
    def run(params):
        with rules_scope(DEFAULT_RULES, one_device):
            model = prepared.model.merge(params)
            inputs = np.roll(targets, 1, axis=1) * (np.arange(5) > 0)
            arrays = map(jnp.asarray, (source, inputs, targets > 0))
            return model(*arrays, labels_B=labels, num_labels=3)

    logits, output = run(jax.device_put(jax.device_get(params), jax.devices()[0]))
    logits = np.asarray(logits, np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_p, correct = [], []
    for i, row in enumerate(rows):
        places = list(enumerate(row["targets"]))
        log_p.append(np.array([log_probs[i, j, token] for j, token in places]))
        correct.append(np.array([logits[i, j].argmax() == token for j, token in places]))
    return Naive(rows, log_p, correct, np.asarray(output.by_label.load_NE))


@pytest.mark.parametrize(
    ("task", "rows"), [("eval_ab_en", slice(0, 10)), ("eval_cd_en", slice(10, 15)), ("all", ...)]
)
def test_loss_and_accuracy_are_means_over_target_tokens(scalars, naive, task, rows):
    rows = slice(None) if rows is ... else rows
    log_p = np.concatenate(naive.log_p[rows])
    assert scalars[f"eval/{task}/loss"] == pytest.approx(-log_p.mean(), abs=1e-5)
    correct = np.concatenate(naive.correct[rows])
    assert scalars[f"eval/{task}/token_accuracy"] == pytest.approx(correct.mean())


def test_metrics_are_those_of_seqios_evaluator(evaluator, scalars, params, naive):
    theirs = seqio.Evaluator(
        mixture_or_task_name="eval",
        feature_converter=seqio.EncDecFeatureConverter(pack=False),
        eval_split="validation",
        sequence_length=LENGTHS,
    )
    log_p = {tuple(r["inputs"]): p.sum() for r, p in zip(naive.rows, naive.log_p, strict=True)}

    def sources(dataset):
        for index, example in dataset.as_numpy_iterator():
            yield index, example["encoder_input_tokens"][example["encoder_input_tokens"] > 0]

    def predict(dataset):
        indices, tokens = zip(*sources(dataset), strict=True)
        examples = [Example(row, "", "") for row in tokens]
        found = evaluator._decoder.decode(params, examples, progress=False)
        rows = [(*h.tokens, *([] if h.truncated else [1]), *[0] * 5)[:5] for h in found]
        scores = {"scores": [h.score for h in found]}
        return list(zip(indices, rows, strict=True)), scores

    metrics, _ = theirs.evaluate(
        compute_metrics=True,
        predict_fn=lambda dataset: predict(dataset)[0],
        predict_with_aux_fn=predict,
        score_fn=lambda dataset: [(i, log_p[tuple(source)]) for i, source in sources(dataset)],
    )
    theirs.close()
    expected = metrics.result()
    assert expected.keys() == {"eval_ab_en", "eval_cd_en"}  # eval_ef_en has no metric
    assert expected["eval_cd_en"].keys() == {"beam", "text", "half", "longest"}
    text = expected["eval_cd_en"].pop("text")
    for task, values in expected.items():
        for name, value in values.items():
            assert scalars[f"eval/{task}/{name}"] == pytest.approx(value, rel=1e-5), (task, name)
    assert result(evaluator, 7)["tasks"]["eval_cd_en"]["text"] == text.textdata


def test_all_has_the_mean_over_the_tasks_that_have_a_metric(scalars):
    assert scalars["eval/all/n"] == 10.0
    assert scalars["eval/all/half"] == 2.5
    assert "eval/all/text" not in scalars


def result(evaluator, step: int) -> dict:
    return evaluation_files.read_result(evaluator._experiment.model_dir, step, "validation")


def test_files_of_a_step_hold_all_numbers_and_every_example(evaluator, scalars, experiment, params):
    assert result(evaluator, 7)["settings"]["tasks"] == {
        "eval_ab_en": 10,
        "eval_cd_en": 5,
        "eval_ef_en": 5,
    }
    evaluator(3, params)
    evaluator(7, params)  # again: its line stays one
    lines = experiment.path("evaluation.jsonl").read_text().splitlines()
    assert [(json.loads(line)["step"], json.loads(line)["split"]) for line in lines] == [
        (3, "validation"),
        (7, "validation"),
    ]
    numbers = {f"eval/{name}": value for name, value in json.loads(lines[1]).items()}
    assert scalars.items() <= numbers.items()
    folder = experiment.path("evaluation", "7", "validation")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["tasks"] == {"eval_ab_en": 10, "eval_cd_en": 5}
    row = json.loads((folder / "eval_ab_en.jsonl").read_text().splitlines()[6])
    assert (row["id"], row["source"], row["reference"], row["target"]) == (
        6,
        "bgre",
        "gree",
        "GREE.",
    )
    assert row["prediction"] == row["output"].upper()
    assert row["input"]["targets"] == [106, 117, 104, 104, 1]
    assert not list(experiment.path("evaluation").rglob("*.new"))


def test_experts_by_language_are_exact_counts(evaluator, scalars, experiment, naive):
    experts = json.loads(
        experiment.path("evaluation", "7", "validation", "experts.json").read_text()
    )
    assert experts["layers"] == ["encoder 0", "encoder 2", "decoder 0"]
    assert (experts["num_experts"], list(experts["languages"])) == (
        4,
        ["eval_ab_en", "eval_cd_en", "eval_ef_en"],
    )
    shares = np.array(list(experts["languages"].values()))
    counts = naive.load_NE.swapaxes(0, 1)
    np.testing.assert_allclose(shares, counts / counts.sum(-1, keepdims=True), atol=1e-6)


def test_tasks_of_m4_are_called_by_their_language():
    names = ["m4_de_en", "m4_sample_de_en", "m4_sr_Latn_en", "m4_ted_sr_Latn_en", "wmt_zh_en", "x"]
    found = [expert_languages.task_language(name) for name in names]
    assert found == ["de", "de", "sr_Latn", "sr_Latn", "wmt_zh_en", "x"]


def evaluate(experiment, evaluator, **options):
    """`evaluate` with the programs that are compiled already."""
    shared = types.SimpleNamespace(
        batch_size=8, mixture_or_task_name=None, open=lambda experiment, prepared: evaluator
    )
    return evaluating.evaluate(experiment, evaluation=shared, **options)


def test_which_checkpoints_are_evaluated(experiment, evaluator, scalars):
    assert evaluate(experiment, evaluator) == {7: scalars}
    assert evaluate(experiment, evaluator, steps=3).keys() == {3}
    assert evaluate(experiment, evaluator, steps="all") == {}
    shutil.rmtree(experiment.path("evaluation", "3"))
    found = evaluate(
        experiment, evaluator, steps="continuous", wait_seconds=60.0, poll_seconds=0.1, last_step=7
    )
    assert found.keys() == {3}
    examples = evaluator._splits["validation"][0].read.examples
    before, examples[3] = examples[3], examples[3]._replace(reference="other")
    assert not evaluator.is_done(7)
    examples[3] = before
    assert evaluator.is_done(7)


def test_a_checkpoint_that_a_run_removes_meanwhile_is_passed_over(
    experiment, evaluator, scalars, monkeypatch
):
    shutil.rmtree(experiment.path("evaluation", "7"))
    monkeypatch.setattr(Checkpointer, "steps", lambda self: [5, 7])
    found = evaluate(experiment, evaluator, steps="continuous", wait_seconds=0, poll_seconds=0.01)
    assert found == {7: scalars}


def test_a_checkpoint_that_goes_while_it_is_read_is_passed_over(
    experiment, evaluator, scalars, monkeypatch, caplog
):
    step = experiment.path("checkpoints", "5")
    shutil.copytree(experiment.path("checkpoints", "7"), step)
    (step / "state" / "manifest.ocdbt").unlink()  # its removal has begun
    monkeypatch.setattr(Checkpointer, "steps", lambda self: [5, 7])
    removal = threading.Timer(1.0, shutil.rmtree, [step])
    removal.start()
    found = evaluate(experiment, evaluator, steps="all")
    removal.join()
    assert found.keys() <= {7}
    assert "Checkpoint 5 was removed before it could be evaluated." in caplog.messages


def test_a_damaged_checkpoint_that_stays_is_reported(experiment, evaluator, monkeypatch):
    step = experiment.path("checkpoints", "5")
    shutil.copytree(experiment.path("checkpoints", "7"), step)
    (step / "state" / "manifest.ocdbt").unlink()
    monkeypatch.setattr(Checkpointer, "steps", lambda self: [5, 7])
    monkeypatch.setattr(evaluating, "_REMOVAL_SECONDS", 0.0)
    with pytest.raises(UserError, match=r"checkpoint 5 in .* is damaged"):
        evaluate(experiment, evaluator, steps="all")
    shutil.rmtree(step)


def test_sums_written_after_an_evaluation_do_not_make_it_old(experiment, evaluator, params):
    evaluator(7, params)
    later = time.time() + 100
    os.utime(experiment.path("checkpoints", "7"), (later, later))
    assert evaluator.is_done(7)
    marks = experiment.path("checkpoints", "7", "_CHECKPOINT_METADATA")
    before = marks.read_text()
    marks.write_text(json.dumps({**json.loads(before), "commit_timestamp_nsecs": 5}))
    assert not evaluator.is_done(7)
    path = experiment.path("evaluation", "7", "validation.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "checkpoint": None}))
    assert evaluator.is_done(7)  # a run measured the parameters before it saved them
    marks.write_text(before)
    evaluator(7, params)


def test_a_dry_run_writes_nothing(experiment, evaluator, monkeypatch, tmp_path):
    compiled = []
    monkeypatch.setattr(evaluator, "compile", lambda: compiled.append(True))
    empty = dataclasses.replace(experiment, model_dir=str(tmp_path / "no"))
    assert evaluate(empty, evaluator, dry_run=True) == {}
    assert compiled == [True]
    assert not (tmp_path / "no").exists()


def test_what_cannot_be_is_named(experiment, evaluator, prepared, tmp_path):
    with pytest.raises(UserError) as error:
        evaluate(experiment, evaluator, steps="latest", wait_seconds=-1.0, last_step=5)
    assert error.value.faults == (
        "evaluate: steps='latest' must be one of 'newest', 'all', 'continuous', or numbers such as "
        "(100, 200)",
        "evaluate: wait_seconds=-1.0 and poll_seconds=10.0 must not be negative, and poll_seconds "
        "not 0",
        "evaluate: last_step=5 is only for steps='continuous'",
    )
    with pytest.raises(UserError, match=r"there is no checkpoint 4, 5 in .*; there is 3, 7"):
        evaluate(experiment, evaluator, steps=(3, 4, 5))
    with pytest.raises(UserError, match="batch_size=12 cannot be divided by the 8 parts"):
        Evaluation(batch_size=12).open(experiment, prepared)
    with pytest.raises(UserError, match="'validatio' is missing in 3 of 3 tasks"):
        Evaluation(splits=("validatio",)).open(experiment, prepared)
    expected = (
        "Evaluation: splits='test' must be names, such as ('test',); num_examples=0 must be at "
        "least 1, or None"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        Evaluation(splits="test", num_examples=0)


def test_a_metric_that_fails_names_its_task(evaluator):
    def broken(targets, predictions):
        raise ZeroDivisionError("no words")

    task = evaluator._splits["validation"][0]
    metric = seqio.metrics.PassthroughLegacyMetric.from_metric_fn(broken).empty()
    rows = [example.row for example in task.read.examples]
    outputs = {"PREDICTION": np.zeros((10, 5), np.int32)}
    with pytest.raises(ZeroDivisionError) as error:
        task_metrics.measure(task.task, [metric], rows, outputs)
    assert error.value.__notes__ == ["while computing a metric of task eval_ab_en"]


def test_metrics_of_what_is_not_made_are_refused():
    kind = seqio.metrics.ModelOutputType.SCORE_WITH_INTERMEDIATES
    odd = types.SimpleNamespace(
        name="odd", metric_objs=[types.SimpleNamespace(model_output_type=kind)]
    )
    with pytest.raises(UserError, match="task odd has metrics of SCORE_WITH_INTERMEDIATES; there"):
        task_metrics.metrics_of(odd, predictions=True)
