import dataclasses
import json
import re
import subprocess
import sys

import pytest

from gshard_m4.input_error import InputError
from gshard_m4.prepared import (
    Manifest,
    ShardEntry,
    ShardWriter,
    SourceEntry,
    open_prepared,
    write_prepared,
)

TEXTS = {
    "de": {
        "train": [(f"Zeile {i}", f"line {i}", "ted") for i in range(40)],
        "validation": [("Ja", "Yes")],
    },
    "zh_Hant": {"train": [("早安", "Good morning")], "test": []},
}
SOURCE = SourceEntry(
    kind="tsv", path="/data/in", licence="CC0-1.0", licence_source="README", hash="00"
)


@pytest.fixture
def folder(tmp_path):
    write_prepared(tmp_path / "m4", TEXTS, name="tiny", sources=[SOURCE], settings={"seed": 1})
    return tmp_path / "m4"


def change(folder, edit):
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def faults(folder, **options):
    with pytest.raises(InputError) as caught:
        open_prepared(folder, **options)
    return list(caught.value.faults)


def test_text_is_read_back_by_language_and_split(folder):
    prepared = open_prepared(folder, verify=True)
    assert list(prepared.pairs("de", "train")) == [row[:2] for row in TEXTS["de"]["train"]]
    assert prepared.pairs("de", "train")[-1] == ("Zeile 39", "line 39")
    assert list(prepared.pairs("de", "train").with_origin()) == TEXTS["de"]["train"]
    assert prepared.pairs("zh_Hant", "train")[0] == ("早安", "Good morning")
    assert list(prepared.pairs("zh_Hant", "test")) == []
    assert list(prepared.pairs("zh_Hant", "validation")) == []
    assert prepared.counts("train") == {"de": 40, "zh_Hant": 1}
    assert prepared.counts("validation") == {"de": 1, "zh_Hant": 0}
    assert prepared.source_vocabulary == folder / "vocabulary" / "source.model"


def test_a_language_in_several_shards_is_one_sequence(folder):
    rows = TEXTS["de"]["train"]
    shards = []
    for number, (first, last) in enumerate([(0, 17), (17, 17), (17, 40)]):
        with ShardWriter(folder / f"de/train-{number:05}-of-00003.tsv.gz") as writer:
            for row in rows[first:last]:
                writer.write(*row)
        shards.append(
            {
                "file": f"de/train-{number:05}-of-00003.tsv.gz",
                "rows": writer.rows,
                "sha256": writer.sha256,
                "bytes": writer.bytes,
            }
        )
    change(folder, lambda m: m["languages"]["de"]["splits"]["train"].update(shards=shards))
    pairs = open_prepared(folder, verify=True).pairs("de", "train")
    assert len(pairs) == 40
    assert [pairs[i] for i in range(40)] == list(pairs) == [row[:2] for row in rows]
    with pytest.raises(IndexError):
        pairs[40]


def test_the_manifest_says_all_that_was_given(folder):
    manifest = open_prepared(folder).manifest
    assert (manifest.name, manifest.settings, manifest.sources) == ("tiny", {"seed": 1}, (SOURCE,))
    german = manifest.languages["de"]
    assert (german.name, german.script, german.kept, german.read) == ("German", "Latn", 41, 41)
    taiwan = manifest.languages["zh_Hant"]
    assert (taiwan.name, taiwan.script) == ("Chinese (script Hant)", "Hant")
    (shard,) = german.splits["train"].shards
    assert shard == ShardEntry(
        file="de/train-00000-of-00001.tsv.gz",
        rows=40,
        sha256=shard.sha256,
        bytes=(folder / shard.file).stat().st_size,
    )


def test_files_are_opened_when_they_are_read(folder):
    pairs = open_prepared(folder).pairs("de", "train")
    (folder / "de/train-00000-of-00001.tsv.gz").unlink()
    assert len(pairs) == 40
    with pytest.raises(InputError, match="cannot be read"):
        pairs[0]


def test_all_files_that_are_missing_or_changed_are_named(folder):
    (folder / "zh_Hant/test-00000-of-00001.tsv.gz").unlink()
    with (folder / "de/train-00000-of-00001.tsv.gz").open("ab") as file:
        file.write(b"x")
    size = (folder / "de/train-00000-of-00001.tsv.gz").stat().st_size
    assert faults(folder) == [
        f"{folder}/de/train-00000-of-00001.tsv.gz: has {size} bytes, the manifest says {size - 1}",
        f"{folder}/zh_Hant/test-00000-of-00001.tsv.gz: cannot be read (No such file or directory);"
        " prepare the data again",
    ]


def test_a_changed_byte_is_found_where_hashes_are_asked_for(folder):
    path = folder / "de/validation-00000-of-00001.tsv.gz"
    known = open_prepared(folder).manifest.languages["de"].splits["validation"].shards[0].sha256
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    open_prepared(folder)
    (fault,) = faults(folder, verify=True)
    assert re.fullmatch(
        rf"{re.escape(str(path))}: its SHA-256 is [0-9a-f]{{64}}, the manifest says {known}", fault
    )


def test_an_unfinished_directory_and_no_directory_are_named(folder, tmp_path):
    (folder / "manifest.json").unlink()
    assert faults(folder) == [
        f"{folder}: has no manifest.json, so it is unfinished or not prepared; run gshard-m4"
        " prepare to its end"
    ]
    assert faults(tmp_path / "none") == [
        f"{tmp_path / 'none'}: no such directory; give the --output of gshard-m4 prepare"
    ]


def test_all_that_is_wrong_in_a_manifest_is_named(folder):
    def edit(manifest):
        del manifest["command"]
        manifest["nmae"] = "x"
        manifest["languages"]["de"]["read"] = -1
        manifest["languages"]["de"]["removed"] = {"empty": "3"}
        manifest["languages"]["de"]["splits"]["train"]["shards"][0]["rows"] = True
        manifest["sources"] = {}

    change(folder, edit)
    assert faults(folder) == [
        f"{folder}/manifest.json: {fault}"
        for fault in (
            "the file lacks command",
            "the file has unknown nmae",
            "sources must be a list, got {}",
            "languages.de.splits.train.shards[0].rows must be a number of at least 0, got true",
            'languages.de.removed must be an object of numbers of at least 0, got {"empty": "3"}',
            "languages.de.read must be a number of at least 0, got -1",
        )
    ]


def test_values_that_do_not_fit_together_are_named(folder):
    def edit(manifest):
        manifest["name"] = "Tiny corpus"
        languages = manifest["languages"]
        languages["de"]["splits"]["train"]["rows"] = 41
        languages["de"]["splits"]["validation"]["shards"][0]["file"] = "../de/x.tsv.gz"
        languages["german"] = languages.pop("zh_Hant")
        languages["german"]["splits"] = {"dev": {"rows": 0, "shards": []}}

    change(folder, edit)
    assert faults(folder) == [
        f"{folder}/manifest.json: {fault}"
        for fault in (
            "name 'Tiny corpus' must be of a-z, 0-9 and _",
            "de train has 41 rows but its shards have 40",
            "de validation names '../de/x.tsv.gz', which is no shard below de/",
            "language 'german' must be a code such as 'de' or 'zh_Hant'",
            "german has the split 'dev'; known are train, validation, test",
        )
    ]


def test_what_is_no_manifest_of_this_version_is_refused(folder):
    change(folder, lambda m: m.update(schema_version=2))
    assert faults(folder) == [f"{folder}/manifest.json: schema_version is 2, this version reads 1"]
    (folder / "manifest.json").write_text("[1]")
    assert faults(folder) == [
        f"{folder}/manifest.json: schema_version is None, this version reads 1"
    ]
    (folder / "manifest.json").write_text("{")
    (fault,) = faults(folder)
    assert fault.startswith(f"{folder}/manifest.json: not JSON (Expecting property name")


def test_a_shard_with_other_rows_than_the_manifest_says_is_refused(folder):
    def edit(manifest):
        split = manifest["languages"]["de"]["splits"]["train"]
        split["rows"] = split["shards"][0]["rows"] = 41

    change(folder, edit)
    pairs = open_prepared(folder).pairs("de", "train")
    with pytest.raises(InputError, match=r"has 40 rows, the manifest says 41$"):
        pairs[0]


def test_a_manifest_is_written_as_it_is_read(folder):
    manifest = open_prepared(folder).manifest
    before = (folder / "manifest.json").read_bytes()
    dataclasses.replace(manifest).write(folder)
    assert (folder / "manifest.json").read_bytes() == before
    assert isinstance(manifest, Manifest)


def test_the_package_needs_the_standard_library_alone():
    code = "import sys; import gshard_m4.prepared; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
