import hashlib
import json
import subprocess
import sys

import pytest
import sacrebleu

from gshard_m4.evaluation import metrics
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.language_scores import signatures
from gshard_m4.evaluation.metrics import Asked, check
from gshard_m4.evaluation.ranking import best_and_worst
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError
from gshard_m4.sample.corpus import corpus

ROWS = [
    ("a", "the cat, it’s on the mat.", "the cat is on a mat."),
    ("b", "1,000 well-known “dogs” bark", "1000 well known dogs barked"),
    ("c", "He said: nothing at all happened here", "he said nothing happened at all"),
    ("d", "rain", ""),
] * 10  # fmt: skip


def faults_of(asked):
    with pytest.raises(InputError) as raised:
        check(asked)
    return list(raised.value.faults)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """The folder in which sacrebleu looks for models, empty."""
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def model(models):
    """A model under the name of FLORES-200's; its hash."""
    data = corpus().target_vocabulary.read_bytes()
    (models / "flores200sacrebleuspm").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_scores_are_those_of_sacrebleus_own_command_to_the_last_digit(write_split, tmp_path):
    for name, column in (("ref", 1), ("hyp", 2)):
        (tmp_path / name).write_text("".join(f"{row[column]}\n" for row in ROWS), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", tmp_path / "ref", "-i", tmp_path / "hyp"]
    command += ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "-w", "17", "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = {found["name"]: found for found in json.loads(done.stdout)}
    asked = Asked(("bleu", "chrf++", "ter"))
    scores = evaluate(read_translations(write_split("test", {"m4_de_en": ROWS})), asked=asked)
    (one,) = scores.splits[0].languages
    for metric in scores.metrics:
        found = theirs["chrF2++" if metric.key == "chrfpp" else metric.title]
        assert one.value(metric.key) == found["score"]
        assert metric.signature == found["signature"]


def test_other_tokenizers_are_those_of_sacrebleu(write_split):
    split = read_translations(write_split("test", {"m4_de_en": ROWS}))
    scores = evaluate(split, asked=Asked(("bleu",), "intl"))
    own = sacrebleu.BLEU(tokenize="intl")
    expected = own.corpus_score([row[2] for row in ROWS], [[row[1] for row in ROWS]])
    one = scores.splits[0].languages[0]
    assert (one.bleu, one.chrfpp, one.ter) == (expected.score, None, None)
    assert scores.signatures == {"bleu": own.get_signature().format()}
    assert "tok:intl" in scores.signatures["bleu"]


def test_only_ter_ranks_the_lowest_first(write_split):
    tasks = {"m4_de_en": ROWS, "m4_fr_en": [(a, b, b) for a, b, _ in ROWS], "m4_it_en": ROWS[:38]}
    split = read_translations(write_split("test", tasks))
    scores = evaluate(split, asked=Asked(("ter",)), min_phrases=1)
    assert best_and_worst(scores.splits[0], 1)[0][0].code == "fr"
    assert scores.leading is not None
    assert (scores.leading.key, scores.leading.higher_is_better) == ("ter", False)


def test_exact_alone(write_split):
    split = read_translations(write_split("test", {"m4_de_en": ROWS, "m4_fr_en": ROWS}))
    scores = evaluate(split, asked=Asked(("exact",)))
    assert (scores.metrics, scores.leading) == ((), None)
    assert scores.splits[0].headline.mean["exact"] == 0


def test_unknown_names_come_all_at_once(models):
    assert faults_of(Asked(("bleu", "blue", "chrf"), "13b")) == [
        "--metrics: there is no metric 'blue'; there are bleu, chrf++, spbleu, ter, exact; did you "
        "mean bleu?",
        "--metrics: there is no metric 'chrf'; there are bleu, chrf++, spbleu, ter, exact; did you "
        "mean chrf++?",
        "--tokenize: there is no tokenizer of sacrebleu '13b'; there are "
        f"{', '.join(sacrebleu.BLEU.TOKENIZERS)}; did you mean 13a?",
    ]


def test_no_model_is_fetched(models, monkeypatch):
    def fetch(*_):
        raise AssertionError("fetched")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", fetch)
    assert faults_of(Asked(("spbleu", "bleu"), "flores101")) == [
        f"the flores200 tokenizer needs {models}/flores200sacrebleuspm, which is not there; fetch "
        "https://tinyurl.com/flores200sacrebleuspm once and save it under that name (nothing is "
        "fetched here)",
        f"the flores101 tokenizer needs {models}/sacrebleu_tokenizer_spm.model, which is not "
        "there; fetch https://dl.fbaipublicfiles.com/fairseq/models/flores/"
        "sacrebleu_tokenizer_spm.model once and save it under that name (nothing is fetched here)",
    ]


def test_another_model_is_not_taken_for_the_published_one(models, model):
    (fault,) = faults_of(Asked(("spbleu",)))
    assert fault == (
        f"{models}/flores200sacrebleuspm is not the published flores200 model: its SHA-256 is "
        f"{model}, not {metrics.FLORES200_SHA256}; fetch https://tinyurl.com/flores200sacrebleuspm "
        "again, or name this one with --spbleu-sha256 and compare its scores with no others"
    )


def test_spbleu_is_sacrebleus_and_its_signature_tells_another_model(models, model, write_split):
    asked = Asked(("spbleu",), spbleu_sha256=model)
    assert check(asked) == {f"{models}/flores200sacrebleuspm": model}
    split = read_translations(write_split("test", {"m4_de_en": ROWS}))
    scores = evaluate(split, asked=asked)
    own = sacrebleu.BLEU(tokenize="flores200", force=True)
    expected = own.corpus_score([row[2] for row in ROWS], [[row[1] for row in ROWS]])
    one = scores.splits[0].languages[0]
    assert (one.spbleu, one.bleu) == (expected.score, None)
    assert scores.signatures == {"spbleu": f"{own.get_signature().format()}|model:{model[:12]}"}
    assert scores.files == {f"{models}/flores200sacrebleuspm": model}


def test_a_tokenizer_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    sys.modules.pop("sacrebleu.tokenizers.tokenizer_ja_mecab", None)
    (fault,) = faults_of(Asked(tokenize="ja-mecab"))
    assert fault.startswith("--tokenize=ja-mecab: the tokenizer is not installed (")
    assert "pip install sacrebleu[ja]" in fault


def test_signatures_of_the_defaults():
    version = sacrebleu.__version__
    assert signatures(Asked()) == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}",
        "chrfpp": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:{version}",
    }
