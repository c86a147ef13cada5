"""gshard-train's evaluation of gshard-m4's tasks, read and drawn by `gshard-m4 evaluate`."""

import json
import warnings

import pytest

from gshard_annotate import DEFAULT_RULES, make_mesh

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio

    import gshard_m4.sample.tasks  # noqa: F401 (registers the tasks)

from gshard_m4.cli import run
from gshard_train import state
from gshard_train.decoding.decoder import Decoder, Hypothesis
from gshard_train.evaluation import Evaluation
from gshard_train.experiment import Experiment, prepare
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

seqio.MixtureRegistry.add("sample_cy_de", ["m4_sample_cy_en", "m4_sample_de_en"], default_rate=1.0)


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    model = TransformerConfig(
        source_vocab_size=12288,
        target_vocab_size=1536,
        max_length=12,
        embed=12,
        mlp=20,
        num_heads=2,
        head_dim=5,
        num_encoder_layers=4,
        num_decoder_layers=2,
        num_experts=4,
        num_groups=8,
    )
    return Experiment(
        model_dir=str(tmp_path / "m4"),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=model,
        optimizer=adam(1e-3),
        make_feed=lambda **_: None,
        mixture_or_task_name="sample_cy_de",
        task_feature_lengths={"inputs": 12, "targets": 8},
        batch_size=8,
    )


def decode(decoder, params, examples, *, progress, numbers, between):
    """In place of a model that has learnt something: the first example is cut, others are right."""
    pieces = [[int(piece) for piece in example.row["targets"][:-1]] for example in examples]
    return [
        Hypothesis(tokens if number else tokens[:1], -1.0, False)
        for tokens, number in zip(pieces, numbers, strict=True)
    ]


def test_scores_and_experts_of_an_evaluation_are_those_of_the_report(
    experiment, tmp_path, monkeypatch
):
    monkeypatch.setattr(Decoder, "decode", decode)
    prepared = prepare(experiment)
    evaluator = Evaluation(splits=("test",), num_examples=5).open(experiment, prepared)
    made = state.create(*prepared[1:], DEFAULT_RULES, prepared.mesh, seed=0)
    scalars = evaluator(3, made.params)
    folder, output = experiment.path("evaluation", "3"), tmp_path / "report"
    assert run(["evaluate", f"--translations={folder}", f"--output={output}", "--as-is"]) == 0
    scores = json.loads((output / "scores.json").read_text())["splits"]["test"]
    for language in scores["languages"]:
        assert 0 < language["chrfpp"] < 100
        for name in ("bleu", "chrfpp", "exact"):
            found = scalars[f"eval/{language['task']}/{name}"]
            assert found == pytest.approx(language[name], abs=1e-3)
    assert {language["code"] for language in scores["languages"]} == {"cy", "de"}
    pictures = sorted(path.name for path in output.glob("test-experts-*.svg"))
    assert pictures == [
        "test-experts-0-encoder_0.svg",
        "test-experts-1-encoder_2.svg",
        "test-experts-2-decoder_0.svg",
    ]
