import json

import pytest

from gshard_m4.evaluation.translations import TranslationsError, read_translations, task_language

ROWS = [("Hund", "dog", "dog"), ("rote Rose", "red rose", "rose", True), ("Apfel", "apple", "")]


def faults_of(folder):
    with pytest.raises(TranslationsError) as raised:
        read_translations(folder)
    return list(raised.value.faults)


def edit_lines(path, edit):
    """Applies `edit` to the list of lines (bytes)."""
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"".join(line + b"\n" for line in edit(lines)))


def test_splits_tasks_and_rows_are_read_in_order(write_split):
    write_split("unseen", {"m4_sample_zh_en": ROWS[:1]})
    folder = write_split("test", {"m4_sample_fil_en": ROWS, "m4_sample_de_en": ROWS[:2]})
    test, unseen = read_translations(folder.parent)
    assert (test.name, unseen.name) == ("test", "unseen")
    assert (test.checkpoint_step, test.decoder) == (2050, {"beam_size": 4})
    assert [task.language.code for task in test.tasks] == ["de", "fil"]
    second = test.tasks[1].rows[1]
    assert (second.id, second.source, second.reference) == (1, "rote Rose", "red rose")
    assert (second.prediction, second.truncated) == ("rose", True)


def test_one_split_is_read_from_its_own_folder(write_split):
    folder = write_split("test", {"m4_sample_de_en": ROWS})
    write_split("unseen", {"m4_sample_de_en": ROWS})
    assert [split.name for split in read_translations(folder)] == ["test"]


def test_line_separators_inside_a_text_do_not_split_the_line(write_split):
    folder = write_split("test", {"m4_de_en": [("a\u2028b\x85c", "x\u2029y", "z\rz")]})
    (task,) = read_translations(folder)[0].tasks
    assert task.rows[0].source == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("m4_de_en", "de"),
        ("m4_sample_ceb_en", "ceb"),
        ("m4_my_own_corpus_yo_en", "yo"),
        ("m4_flores_zho_Hans_en", "zh"),
        ("m4_sample_iw_en", "he"),
    ],
)
def test_language_comes_from_the_task_name(task, code):
    assert task_language(task).code == code


@pytest.mark.parametrize("task", ["wmt_de_en", "m4_en_de", "m4_en", "m4_sample"])
def test_other_task_names_are_refused(task):
    with pytest.raises(ValueError, match=f"task '{task}' is not named m4_<corpus>_<language>_en"):
        task_language(task)


def test_missing_folder_and_file_in_its_place(tmp_path):
    (tmp_path / "file").write_text("")
    assert faults_of(tmp_path / "none") == [
        f"{tmp_path}/none does not exist; give the folder that decoding wrote, "
        "MODEL_DIR/translations"
    ]
    assert "file is a file; give the folder" in faults_of(tmp_path / "file")[0]


def test_folder_without_translations(tmp_path, write_split):
    (tmp_path / "empty" / "test").mkdir(parents=True)
    (fault,) = faults_of(tmp_path / "empty")
    assert fault.endswith("empty holds no <split>/<task>.jsonl; decode first (gshard-infer)")
    write_split("test", {"m4_de_en": ROWS})
    (fault,) = faults_of(tmp_path)
    assert fault.endswith(f"did you mean {tmp_path}/translations?")


def test_half_a_split_is_not_scored_as_if_whole(write_split):
    folder = write_split("test", {"m4_de_en": ROWS, "m4_fr_en": ROWS, "m4_it_en": ROWS})
    (folder / "m4_fr_en.jsonl").unlink()
    edit_lines(folder / "m4_it_en.jsonl", lambda lines: lines[:2])
    (folder / "m4_es_en.jsonl").write_bytes((folder / "m4_de_en.jsonl").read_bytes())
    assert faults_of(folder.parent) == [
        f"{folder}/m4_fr_en.jsonl is missing, manifest.json lists it; decode this split again",
        f"{folder}/m4_es_en.jsonl is not listed in manifest.json; if it is of another run, "
        "remove it",
        f"{folder}/m4_it_en.jsonl has 2 lines, manifest.json counts 3; decode this split again",
    ]


def test_missing_manifest_means_interrupted(write_split):
    folder = write_split("test", {"m4_de_en": ROWS})
    (folder / "manifest.json").unlink()
    assert faults_of(folder) == [
        f"{folder}/manifest.json is missing; it is written last, so decoding was interrupted: "
        "decode this split again"
    ]


def test_broken_manifest(write_split):
    folder = write_split("test", {"m4_de_en": ROWS}, decoder=None, tasks={"m4_de_en": "3"})
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checkpoint_step"]
    (folder / "manifest.json").write_text(json.dumps(manifest | {"split": "unseen"}))
    assert faults_of(folder) == [
        f"{folder}/manifest.json: 'decoder' must be an object, not NoneType",
        f"{folder}/manifest.json: 'checkpoint_step' is missing",
        f"{folder}/manifest.json: 'tasks' must give a whole number of lines for each task",
        f"{folder}/manifest.json: 'split' is 'unseen', its folder is 'test'; rename it back, "
        "or remove it",
    ]
    (folder / "manifest.json").write_text("[1,")
    assert "manifest.json is not JSON (" in faults_of(folder)[0]
    (folder / "manifest.json").write_text("[1]")
    assert faults_of(folder) == [f"{folder}/manifest.json: not a JSON object but list"]


def test_manifest_without_tasks(write_split):
    folder = write_split("test", {})
    assert faults_of(folder) == [f"{folder}/manifest.json lists no tasks; decode this split again"]


def test_task_without_lines(write_split):
    folder = write_split("test", {"m4_de_en": []})
    assert faults_of(folder) == [
        f"{folder}/m4_de_en.jsonl is empty; decode this split again, or remove the task from "
        "the mixture"
    ]


def test_every_bad_line_is_named_at_once(write_split):
    folder = write_split("test", {"m4_de_en": ROWS * 3, "m4_xx_en": ROWS})
    path = folder / "m4_de_en.jsonl"

    def spoil(lines):
        lines[1] = b'{"id": 1, "source": "half'
        lines[2] = lines[2].replace(b'"apple"', b'"  "')
        lines[3] = lines[3].replace(b'"truncated": false', b'"truncated": 0')
        lines[4] = lines[4].replace(b'"id": 4', b'"id": 0').replace(b'"reference"', b'"ref"')
        lines[5] = lines[5].replace(b'"id": 5', b'"id": 0')
        lines[6] = lines[6].replace(b"Hund", b"H\xfcnd")
        lines[7] = b" "
        lines[8] = lines[8].replace(b"Apfel", b"\\ud83d")
        return lines

    edit_lines(path, spoil)
    found = faults_of(folder)
    assert [fault.removeprefix(f"{path} line ") for fault in found[:-1]] == [
        "2: not valid JSON (Unterminated string starting at)",
        "3: reference is empty; scores need a reference for every line",
        "4: 'truncated' must be true or false, not int",
        "5: 'reference' is missing",
        "6: id repeats that of an earlier line",
        "7: not valid JSON (not UTF-8)",
        "8: blank line",
        "9: text holds half of a surrogate pair; write it as UTF-8",
    ]
    assert found[-1].startswith(f"{folder}/m4_xx_en.jsonl: unknown language 'xx'")


def test_the_same_fault_on_many_lines_is_one_message(write_split):
    folder = write_split("test", {"m4_de_en": [("a", "", "b")] * 9})
    (fault,) = faults_of(folder)
    assert fault == (
        f"{folder}/m4_de_en.jsonl line 1: reference is empty; scores need a reference for every "
        "line; also on line 2, 3, 4, 5, 6 and 3 more"
    )


def test_two_tasks_of_one_language(write_split):
    folder = write_split("test", {"m4_a_de_en": ROWS, "m4_b_de_en": ROWS})
    assert faults_of(folder) == [
        f"{folder}: m4_a_de_en and m4_b_de_en are both German (de); score them from separate "
        "folders"
    ]
