"""The benchmark of the training feed: what it takes and what it writes, not how fast it is."""

import json

import pytest

import bench_input
from gshard_m4.prepared import open_prepared
from gshard_m4.sample.corpus import corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two languages of the sample as files with three columns."""
    path = tmp_path_factory.mktemp("tsv")
    for code in ("cy", "de"):
        for suffix, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
            rows = corpus().pairs[code][split]
            text = "".join(f"{source}\t{english}\tcldr\n" for source, english in rows)
            (path / f"{code}.{suffix}.tsv").write_text(text, encoding="utf-8")
    return path


def test_files_become_a_prepared_directory_that_is_measured(folder, tmp_path, capsys):
    arguments = [str(tmp_path / "m4"), f"--from-tsv={folder}", "--seconds=0.05"]
    bench_input.main([*arguments, "--source-size=600", "--target-size=500"])
    prepared = open_prepared(tmp_path / "m4", verify=True)
    assert prepared.counts("train") == {
        code: len(corpus().pairs[code]["train"]) for code in ("cy", "de")
    }
    assert prepared.pairs("cy", "validation")[0] == corpus().pairs["cy"]["validation"][0]
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found) == {"lengths", "unpacked", "packed"}
    keys = {"first_seconds", "examples_per_second", "tokens_per_second", "input_fill"}
    keys |= {"target_fill", "dropped", "cut", "peak_gb", "threads"}
    assert keys == set(found["unpacked"]) == set(found["packed"])
    assert found["lengths"]["inputs"] == 256
    assert found["packed"]["input_fill"] > found["unpacked"]["input_fill"]
    assert found["unpacked"]["dropped"] == 0
