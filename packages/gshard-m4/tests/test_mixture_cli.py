import json
import shutil
import subprocess
import sys

import pytest

from gshard_m4 import cli
from gshard_m4.prepared import write_prepared
from gshard_m4.sample.corpus import corpus

SIZES = {"de": 243, "oc": 32, "yi": 1, "zu": 0}


@pytest.fixture
def folder(tmp_path):
    texts = {
        code: {"train": [(f"{code} {i}", f"line {i}") for i in range(n)]}
        for code, n in SIZES.items()
    }
    write_prepared(tmp_path / "m4", texts, name="tiny")
    return tmp_path / "m4"


def run(capsys, *arguments):
    code = cli.run(["mixture", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()


def test_the_table_shows_shares_batches_and_epochs(capsys, folder):
    code, out, errors = run(capsys, folder, "--batch-size=12", "--steps=10")
    assert (code, errors) == (0, [])
    assert out == (
        "code  name     band  rows    share  a batch  epochs\n"
        "de    German   high   243  50.000%     6.00  0.2469\n"
        "oc    Occitan          32  33.333%     4.00    1.25\n"
        "yi    Yiddish  low      1  16.667%     2.00      20\n"
        "\n"
        "m4_all_en: 3 languages, 276 rows, T = 5\n"
        "epochs are for 120 examples\n"
        "left out, without training rows: zu\n"
    )


def test_cap_floor_and_temperature_are_applied_and_said(capsys, folder):
    options = ("--temperature=1", "--maximum=32", "--minimum-share=0.1", "--examples=1000")
    code, out, _ = run(capsys, folder, *options)
    assert code == 0
    assert out == (
        "code  name     band  rows    share  a batch  epochs\n"
        "de    German   high   243  45.000%            1.852\n"
        "oc    Occitan          32  45.000%            14.06\n"
        "yi    Yiddish  low      1  10.000%              100\n"
        "\n"
        "m4_all_en: 3 languages, 276 rows, T = 1, at most 32 rows each, at least 10.000% each\n"
        "epochs are for 1,000 examples\n"
        "left out, without training rows: zu\n"
    )


def test_json_has_the_same_and_any_code_finds_a_language(capsys, folder):
    code, out, _ = run(capsys, folder, "--languages=ji,deu", "--json", "--batch-size=8")
    assert code == 0
    assert json.loads(out) == {
        "name": "m4_yi_de_en",
        "temperature": 5.0,
        "maximum": None,
        "minimum_share": 0.0,
        "batch_size": 8,
        "rows": 244,
        "budget_examples": 244,
        "tokens_per_example": None,
        "left_out": [],
        "languages": [
            {
                "code": "de",
                "name": "German",
                "band": "high",
                "rows": 243,
                "share": pytest.approx(0.75),
                "examples_per_batch": pytest.approx(6),
                "epochs": pytest.approx(0.75 * 244 / 243),
            },
            {
                "code": "yi",
                "name": "Yiddish",
                "band": "low",
                "rows": 1,
                "share": pytest.approx(0.25),
                "examples_per_batch": pytest.approx(2),
                "epochs": pytest.approx(61),
            },
        ],
    }


def test_a_budget_of_tokens_is_measured_with_the_vocabulary(capsys, folder):
    (folder / "vocabulary").mkdir()
    shutil.copy(corpus().source_vocabulary, folder / "vocabulary" / "source.model")
    code, _, errors = run(capsys, folder, "--tokens=1000")
    assert code == 2
    assert errors == [
        f"gshard-m4 mixture: --tokens: {folder} has no vocabulary; run gshard-m4 vocabulary"
        f" {folder}"
    ]
    shutil.copy(corpus().target_vocabulary, folder / "vocabulary" / "target.model")
    _, out, _ = run(capsys, folder, "--tokens=1000", "--json")
    found = json.loads(out)
    assert 4 < found["tokens_per_example"] < 12
    assert found["budget_examples"] == 1000 / found["tokens_per_example"]


def test_a_band_of_the_sample(capsys):
    code, out, _ = run(capsys, "m4_sample", "--band=low")
    assert code == 0
    assert "m4_sample_low_en: 25 languages, " in out


def test_every_fault_is_named_at_once(capsys, folder):
    code, out, errors = run(
        capsys,
        folder,
        "--languages=de,xx,fr",
        "--temperature=0",
        "--minimum-share=-1",
        "--steps=0",
        "--maximum=0",
    )
    assert (code, out) == (2, "")
    assert [error.removeprefix("gshard-m4 mixture: ") for error in errors] == [
        "--maximum=0 must be at least 1",
        "--steps=0 must be at least 1",
        "--temperature=0 must be above 0",
        "--minimum-share=-1 must be from 0 to 1",
        "--steps needs --batch-size",
        f"--languages: 'xx' is not in {folder}; did you mean de, oc, yi?",
        f"--languages: 'fr' is not in {folder}; did you mean de, oc, yi?",
    ]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--languages=zu"], "mixture 'm4_zu_en': no training text in zu"),
        (["--languages=zu,de"], "--languages: no training text in zu"),
        (["--band=mid"], "mixture 'm4_mid_en': the corpus has no language of it"),
        (
            ["--minimum-share=0.5"],
            "temperature_rates: minimum_share must be from 0 to 0.333333 for 3 languages, got 0.5",
        ),
    ],
)
def test_languages_and_floors_that_cannot_be_are_refused(capsys, folder, arguments, fault):
    assert run(capsys, folder, *arguments) == (2, "", [f"gshard-m4 mixture: {fault}"])


def test_help_needs_the_standard_library_alone():
    code = """
import sys
from gshard_m4.cli import run
try:
    run(["mixture", "--help"])
except SystemExit:
    print("numpy" in sys.modules, "sentencepiece" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False False\n")
