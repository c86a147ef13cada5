import struct

import pytest

from gshard_m4.evaluation.experts import Experts
from gshard_m4.evaluation.scores import Metric
from gshard_m4.evaluation.translations import Split
from gshard_m4.report import comparison_picture_files, picture_files
from gshard_m4.report.pictures import files

LANGUAGES = {
    "de": {"chrfpp": 50.0, "train_rows": 900, "band": "high", "delta": {"chrfpp": 2.0}},
    "ar": {"chrfpp": 41.0, "train_rows": 70, "band": "mid", "delta": {"chrfpp": -1.0}},
    "yo": {"chrfpp": 30.0, "train_rows": 5, "band": "low"},
    "fr": {"chrfpp": 60.0},
}
CHRF = Metric("chrfpp", "chrF++", "nc:6|nw:2")


def png_size(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


@pytest.fixture(scope="module")
def experts():
    shares = {"de": ((0.5, 0.5),), "zh_Hant": ((0.1, 0.9),)}
    return Experts(("encoder/<layer> 1",), 2, shares)


def test_files_of_a_report_are_the_same_every_time(make_scores, experts):
    scores = make_scores(LANGUAGES, split="a b", metrics=(CHRF,))
    split = Split("a b", {}, 7, (), experts)
    found = picture_files(scores, [split])
    stems = [
        "chrfpp-delta-trend",
        "chrfpp-delta-raw",
        "chrfpp-scatter",
        "experts-0-encoder_layer_1",
    ]
    assert list(found) == [f"a_b-{stem}.{kind}" for stem in stems for kind in ("png", "svg")]
    assert png_size(found["a_b-chrfpp-scatter.png"]) == (1650, 690)
    assert all(data.startswith(b"<?xml") for name, data in found.items() if name.endswith("svg"))
    assert b"<dc:date>" not in found["a_b-chrfpp-scatter.svg"]
    assert picture_files(scores, [split]) == found


def test_no_sizes_no_pictures_by_size(make_scores):
    assert picture_files(make_scores({"hr": {}, "bs": {}}), [Split("test", {}, 7, ())]) == {}


def test_files_of_a_comparison(make_scores):
    systems = [make_scores(LANGUAGES, name=name, metrics=(CHRF,)) for name in ("one", "other")]
    stems = ["-trend", "-raw", "-delta-trend", "-delta-raw", "-scatter"]
    found = comparison_picture_files(systems)
    assert list(found) == [f"test-chrfpp{stem}.{kind}" for stem in stems for kind in ("png", "svg")]


def test_splits_of_the_same_name_after_cleaning_keep_their_pictures():
    from matplotlib.figure import Figure

    found = files(lambda: [("a b", Figure((1, 1))), ("a/b", Figure((1, 1)))])
    assert list(found) == ["a_b.png", "a_b.svg", "a_b-2.png", "a_b-2.svg"]
