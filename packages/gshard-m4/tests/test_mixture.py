import re
import shutil

import pytest

from gshard_m4 import mixture
from gshard_m4.corpus import open_corpus
from gshard_m4.input_error import InputError
from gshard_m4.prepared import write_prepared
from gshard_m4.sample.corpus import corpus

# de and fr are high in M4, yi and zu low; oc is no language of M4, co has no training text.
SIZES = {"de": 320, "fr": 32, "oc": 20, "yi": 10, "zh_Hant": 5, "zu": 1, "co": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared")
    texts = {
        code: {"train": [(f"{code} {i}", f"line {i}") for i in range(n)], "test": [("a", "b")]}
        for code, n in SIZES.items()
    }
    write_prepared(path, texts, name="tiny")
    return path


@pytest.fixture
def directories(monkeypatch):
    """An empty list of registered directories, for this test."""
    monkeypatch.setattr(mixture, "_DIRECTORIES", {})


def test_the_sample_mixes_all_languages_and_favours_small_ones():
    found = mixture.find("m4_sample")
    assert sum(found.rates.values()) == pytest.approx(1.0)
    counts = found.corpus.counts("train")
    assert list(found.rates) == list(counts)
    ratio = (counts["de"] / counts["yi"]) ** (1 / 5)
    assert found.rates["de"] / found.rates["yi"] == pytest.approx(ratio)


def test_one_task_is_a_mixture_of_one_language():
    assert mixture.find("m4_sample_fil_en").rates == {"fil": 1.0}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("m4_sampel", "m4_sample"),
        ("m4_sample_iw_en", "m4_sample_he_en, m4_sample"),
        ("m4_sample_deu_Latn_en", "m4_sample_de_en, m4_sample"),
        ("m4_sample_zz_en", "m4_sample_zu_en, m4_sample_zh_en, m4_sample_uz_en"),
        ("wmt", "m4_sample"),
    ],
)
def test_unknown_names_are_refused_with_near_ones(name, near):
    message = f"unknown mixture or task {name!r}; did you mean {near}?"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.find(name)


def test_the_sample_has_bands_and_lists_too():
    found = mixture.find("m4_sample_high_en")
    assert len(found.rates) == 25
    assert set(mixture.find("m4_sample_fr_de_en").rates) == {"de", "fr"}
    assert mixture.find("m4_sample_all_en").rates == mixture.find("m4_sample").rates


@pytest.mark.parametrize(
    ("name", "codes", "left_out"),
    [
        ("m4_all_en", ["de", "fr", "oc", "yi", "zh_Hant", "zu"], ("co",)),
        ("m4_high_en", ["de", "fr"], ()),
        ("m4_low_en", ["yi", "zu"], ("co",)),
        ("m4_yi_en", ["yi"], ()),
        ("m4_zu_zh_Hant_de_en", ["de", "zh_Hant", "zu"], ()),
    ],
)
def test_names_say_which_languages_of_a_prepared_directory(folder, name, codes, left_out):
    found = mixture.find(name, data_dir=folder)
    assert (sorted(found.rates), found.left_out) == (sorted(codes), left_out)
    assert found.name == name
    counts = {code: SIZES[code] for code in codes}
    assert found.rates == pytest.approx(mixture.temperature_rates(counts))


def test_rates_take_temperature_cap_and_floor(folder):
    found = mixture.find("m4_de_fr_zu_en", data_dir=folder, temperature=1, maximum=32)
    assert found.rates == pytest.approx({"de": 32 / 65, "fr": 32 / 65, "zu": 1 / 65})
    floored = mixture.find("m4_de_zu_en", data_dir=folder, minimum_share=0.3)
    assert floored.rates == pytest.approx({"de": 0.7, "zu": 0.3})


def test_languages_without_training_text_are_refused_where_they_are_named(folder):
    message = "mixture 'm4_co_de_en': no training text in co"
    with pytest.raises(ValueError, match=f"^{message}$"):
        mixture.find("m4_co_de_en", data_dir=folder)
    with pytest.raises(ValueError, match=r"^mixture 'm4_co_en': no training text in co$"):
        mixture.find("m4_co_en", data_dir=folder)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("m4_al_en", "m4_all_en, m4_low_en, m4_zu_en"),
        ("m4_deu_en", "m4_de_en, m4"),
        ("m4_de_de_en", "m4_de_en, m4"),
        ("m4_sample", "m4_all_en"),
    ],
)
def test_unknown_names_of_a_directory_are_refused_with_near_ones(folder, name, near):
    message = f"unknown mixture or task {name!r}; did you mean {near}?"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.find(name, data_dir=folder)


def test_a_name_without_its_directory_says_how_to_give_it(directories):
    message = (
        "unknown mixture or task 'm4_all_en'; did you mean m4_sample? Names of a prepared directory"
        ' need it: give data_dir (in gin: feed.training_feed.data_dir = "/path"), or call'
        " gshard_m4.mixture.register first."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.find("m4_all_en")


def test_registered_directories_are_found_by_how_names_begin(folder, directories):
    assert mixture.register(folder).name == "m4"
    assert mixture.register(folder, name="ted_talks").task_name("de") == "m4_ted_talks_de_en"
    assert list(mixture.find("m4_de_en").rates) == ["de"]
    found = mixture.find("m4_ted_talks_de_fr_en")
    assert (sorted(found.rates), found.corpus.name) == (["de", "fr"], "m4_ted_talks")
    assert mixture.find("m4_sample_de_en").corpus is corpus()


def test_a_name_is_not_given_to_two_directories(folder, directories, tmp_path):
    mixture.register(folder, name="ted")
    mixture.register(folder, name="ted")
    shutil.copytree(folder, tmp_path / "other")
    message = (
        f"register: 'm4_ted' is {str(folder)!r} already; give {str(tmp_path / 'other')!r} another"
        " name"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.register(tmp_path / "other", name="ted")


@pytest.mark.parametrize("name", ["sample", "de", "de_fr", "all", "low", "Ted", "a b", ""])
def test_names_that_mean_something_else_are_refused(folder, directories, name):
    message = (
        f"register: the name {name!r} cannot be used; take one of a-z, 0-9 and _ that is no"
        " language, band, 'all' or 'sample'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.register(folder, name=name)


def test_a_directory_that_cannot_be_used_is_named(directories, tmp_path):
    message = f"{tmp_path / 'no'}: no such directory; give the --output of gshard-m4 prepare"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        mixture.register(tmp_path / "no")
    assert mixture._DIRECTORIES == {}


def test_names_of_a_corpus_are_listed_and_found(folder):
    tiny = open_corpus(folder)
    names = mixture.mixture_names(tiny)
    assert names == ["m4_all_en", "m4_high_en", "m4_low_en"]
    assert mixture.list_name(tiny, ["fr", "de"]) == "m4_fr_de_en"
    for name in names:
        assert mixture.find(name, data_dir=folder).rates
    assert tiny.counts("test") == dict.fromkeys(tiny.pairs, 1)
    assert tiny.counts("validation") == dict.fromkeys(tiny.pairs, 0)


def test_a_corpus_without_training_text_is_refused(tmp_path):
    write_prepared(tmp_path, {"de": {"test": [("a", "b")]}}, name="held_out")
    with pytest.raises(ValueError, match=r"^mixture 'm4_all_en': no training text in de$"):
        mixture.find("m4_all_en", data_dir=tmp_path)
