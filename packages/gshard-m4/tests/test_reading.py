import json

import pytest

from gshard_m4 import languages
from gshard_m4.evaluation.identify import Identifier
from gshard_m4.evaluation.pairing import Choice
from gshard_m4.evaluation.reading import read_splits
from gshard_m4.input_error import InputError
from gshard_m4.prepared.small import write_prepared

PLACES = [(colour, place, number) for number in range(5)
          for colour in ("red", "white") for place in ("roof", "door")]  # fmt: skip
ENGLISH = [f"the {c} rose is on the {p} of the old house number {n}" for c, p, n in PLACES]
GERMAN = [f"die Rose ({c}, {p}) ist auf dem Haus mit der Nummer {n}" for c, p, n in PLACES]
SAID = [line.replace("old", "new") for line in ENGLISH]


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, lines in files.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def read(hypotheses, references=None, sources=None, *, language=None, **choice):
    options = {"name": "test", "find": languages.find} | choice
    chosen = languages.find(language) if language else None
    return read_splits(hypotheses, references, sources, Choice(**options), language=chosen)


def faults_of(*paths, **options):
    with pytest.raises(InputError) as raised:
        read(*paths, **options)
    return list(raised.value.faults)


@pytest.fixture
def hyps(tmp_path):
    return write(tmp_path / "hyps", {"de.txt": SAID, "fr.txt": SAID})


@pytest.fixture
def refs(tmp_path):
    return write(tmp_path / "refs", {"de.txt": ENGLISH, "fr.txt": ENGLISH})


def test_folders_by_language(hyps, refs):
    (split,) = read(hyps, refs)
    assert [(task.language.code, task.name) for task in split.tasks] == [
        ("de", "de.txt"),
        ("fr", "fr.txt"),
    ]
    row = split.tasks[0].rows[3]
    assert (row.id, row.prediction, row.reference) == (3, SAID[3], ENGLISH[3])
    assert (row.source, row.truncated, split.checkpoint_step) == (None, None, None)


def test_sources_beside_english_that_all_share(hyps, tmp_path):
    flores = write(tmp_path / "dev", {"eng_Latn.dev": ENGLISH, "deu_Latn.dev": GERMAN})
    (split,) = read(hyps, flores)
    assert [task.rows[0].source for task in split.tasks] == [GERMAN[0], None]
    (split,) = read(hyps, flores, use_sources=False)
    assert split.tasks[0].rows[0].source is None
    (split,) = read(hyps, flores / "eng_Latn.dev", flores)
    assert split.tasks[0].rows[0].source == GERMAN[0]


def test_lines_that_have_everything(tmp_path):
    rows = [
        {"lang": "de", "id": f"s{i}", "source": a, "target": b, "text": c, "truncated": i == 0}
        for i, (a, b, c) in enumerate(zip(GERMAN, ENGLISH, SAID, strict=True))
    ]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (split,) = read(tmp_path / "all.jsonl")
    row = split.tasks[0].rows[0]
    assert (row.id, row.source, row.truncated) == ("s0", GERMAN[0], True)


def test_ids_put_lines_together(tmp_path):
    (tmp_path / "h.tsv").write_text("id\tlang\ttext\n2\tde\ttwo\n1\tde\tone\n")
    rows = [{"id": 1, "lang": "de", "text": "Eins"}, {"id": 2, "lang": "de", "text": "Zwei"}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (split,) = read(tmp_path / "h.tsv", tmp_path / "r.jsonl")
    assert [(row.prediction, row.reference) for row in split.tasks[0].rows] == [
        ("one", "Eins"),
        ("two", "Zwei"),
    ]


def test_ids_that_do_not_match(tmp_path):
    (tmp_path / "h.tsv").write_text("id\tlang\ttext\n1\tde\ta\n2\tde\tb\n2\tfr\tc\n2\tfr\td\n")
    (tmp_path / "r.tsv").write_text("id\tlang\ttext\n1\tde\ta\n3\tde\tb\n2\tfr\tc\n3\tfr\td\n")
    h, r = tmp_path / "h.tsv", tmp_path / "r.tsv"
    assert faults_of(h, r) == [
        f"de: {h} lacks 1 of the ids of {r}: '3'",
        f"de: {r} lacks 1 of the ids of {h}: '2'",
        f"fr: {h} line 5: id repeats that of an earlier line",
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_ids_of_one_side_may_count_its_lines(tmp_path, first):
    (tmp_path / "h.tsv").write_text(f"id\ttext\n{first}\tone\n{first + 1}\ttwo\n")
    (tmp_path / "r.txt").write_text("One\nTwo\n")
    (split,) = read(tmp_path / "h.tsv", tmp_path / "r.txt", language="de")
    assert [(row.prediction, row.reference) for row in split.tasks[0].rows] == [
        ("one", "One"),
        ("two", "Two"),
    ]


def test_other_ids_of_one_side_are_not_ignored(tmp_path):
    h, r = tmp_path / "h.tsv", tmp_path / "r.tsv"
    h.write_text("id\ttext\n1\ttwo\n0\tone\n")
    r.write_text("text\nOne\nTwo\n")
    assert faults_of(h, r, language="de") == [
        f"de: {h} line 3: id '0' does not count the lines in order (from 0 or 1), and {r} has no "
        "ids to put the lines together by; give both ids, or neither"
    ]
    h.write_text("text\none\ntwo\n")
    r.write_text("id\ttext\ns1\tOne\ns2\tTwo\n")
    assert faults_of(h, r, language="de") == [
        f"de: {r} line 2: id 's1' does not count the lines in order (from 0 or 1), and {h} has no "
        "ids to put the lines together by; give both ids, or neither"
    ]


def test_own_references_are_not_ignored(tmp_path):
    h, r = tmp_path / "h.jsonl", tmp_path / "r.txt"
    rows = [{"text": text, "reference": text} for text in ("One", "Two", "Three")]
    h.write_text("\n".join(map(json.dumps, rows)))
    r.write_text("One\nTwo\nThree \n")
    assert len(read(h, r, language="de")[0].tasks[0].rows) == 3
    r.write_text("One\n2\n3\n")
    assert faults_of(h, r, language="de") == [
        f"de: {h} line 2: its own reference is not that of {r}; leave out --references, or the "
        "field; also on line 3"
    ]


def test_lines_of_another_language_than_the_flag_are_one_fault(tmp_path):
    h, r = tmp_path / "h.jsonl", tmp_path / "r.txt"
    h.write_text('{"text": "a", "lang": "fr"}\n')
    r.write_text("a\n")
    assert faults_of(h, r, language="de") == [
        f"{h} line 1: language 'fr', --language says de; --languages chooses from several"
    ]


def test_run_and_its_translations_need_no_more(write_split):
    folder = write_split("test", {"m4_x_de_en": [("a", "b", "c")]})
    for path in (folder, folder.parent, folder.parent.parent):
        assert [split.name for split in read(path)] == ["test"]
    assert faults_of(folder, folder) == [
        f"--hypotheses={folder} is a run's translations, which have references, sources and "
        "languages of their own; leave out --references, --sources and --language"
    ]
    assert faults_of(folder, languages=("fr",)) == ["test has no fr, which --languages asks for"]


def test_no_references(hyps):
    assert faults_of(hyps) == [
        f"--references is missing: the lines of --hypotheses={hyps} have no references of their own"
    ]


def test_half_a_set_is_not_scored_as_if_whole(hyps, refs):
    write(refs, {"it.txt": ENGLISH, "es.txt": ENGLISH})
    write(hyps, {"nl.txt": SAID})
    assert faults_of(hyps, refs) == [
        f"{hyps} has 2 of the 4 languages of {refs}; without hypotheses: es, it. Choose those to "
        "score with --languages",
        f"nl: {refs} has no references for {hyps}/nl.txt",
    ]
    (split,) = read(hyps, refs, languages=("fr",))
    assert ([task.name for task in split.tasks], split.not_scored) == (
        ["fr.txt"],
        ("de", "es", "it", "nl"),
    )
    assert faults_of(hyps, refs, languages=("fr", "it")) == [
        f"{hyps} has no it, which --languages asks for"
    ]


def test_half_of_a_set_with_one_english_is_not_either(hyps, tmp_path):
    names = ("eng_Latn", "deu_Latn", "fra_Latn", "ita_Latn", "oci_Latn")
    flores = write(tmp_path / "dev", {f"{name}.dev": ENGLISH for name in names})
    assert faults_of(hyps, flores, use_sources=False) == [
        f"{hyps} has 2 of the 3 languages of {flores}; without hypotheses: it. Choose those to "
        f"score with --languages, or give {flores}/eng_Latn.dev alone as --references"
    ]
    assert len(read(hyps, flores / "eng_Latn.dev")[0].tasks) == 2


def test_lines_that_cannot_be_read_are_not_counted_on(tmp_path, refs):
    path = tmp_path / "h.jsonl"
    path.write_text('{"text": 2, "id": 1, "lang": "de"}\n{"text": "a", "id": [], "lang": "de"}\n')
    assert faults_of(path, refs, languages=("de",)) == [
        f"{path} line 1: 'prediction' must be a string, not int",
        f"{path} line 2: 'id' must be a whole number or a string, not list",
    ]
    path.write_text('{"text": "a", "lang": "de"}\n[]\n')
    assert faults_of(path, refs) == [f"{path} line 2: not a JSON object but list"]
    sources = tmp_path / "s.jsonl"
    sources.write_text('{"text": 3, "lang": "de"}\n' * 20)
    write(tmp_path / "h", {"de.txt": SAID})
    (fault,) = faults_of(tmp_path / "h", refs, sources, languages=("de",))
    assert fault.startswith(f"{sources} line 1: 'source' must be a string, not int; also on line 2")


def test_counts_that_differ_name_language_counts_and_place(hyps, refs):
    other = [f"{line} {number}a {number}b" for number, line in enumerate("abcdefghijklmnopqrst")]
    write(refs, {"de.txt": other})
    write(hyps, {"de.txt": other[:6] + other[7:], "fr.txt": SAID[:3]})
    assert faults_of(hyps, refs) == [
        f"de: hypotheses {hyps}/de.txt has 19 lines, references {refs}/de.txt has 20: from line 7 "
        "on they are no longer about the same",
        f"fr: hypotheses {hyps}/fr.txt has 3 lines, references {refs}/fr.txt has 20: they are "
        "about the same up to line 3, the last of hypotheses; line 4 of references is the first "
        "without one",
    ]


def test_sources_that_do_not_fit(hyps, tmp_path):
    flores = write(tmp_path / "dev", {"eng_Latn.dev": ENGLISH, "deu_Latn.dev": [*GERMAN, ""]})
    assert faults_of(hyps, flores) == [
        f"de: sources {flores}/deu_Latn.dev has 21 lines, references {flores}/eng_Latn.dev has 20: "
        "line 21 of sources is blank"
    ]


def test_transposed_references(tmp_path):
    h = write(tmp_path / "h", {"h": ["a", "b", "c"]}) / "h"
    r = write(tmp_path / "r", {"r": ["a\tb\tc"]}) / "r"
    assert faults_of(h, r, language="de") == [
        f"de: hypotheses {h} has 3 lines, references {r} has 1: that line has a reference in each "
        "of its columns; give one a line (transposed)"
    ]


def test_empty_references_of_all_are_named_once(hyps, tmp_path):
    refs = write(tmp_path / "r", {"en.txt": ["a", " ", *ENGLISH[2:]]}) / "en.txt"
    assert faults_of(hyps, refs) == [
        f"{refs} line 2: reference is empty; scores need one for every line"
    ]


def test_a_file_that_cannot_be_read_is_one_fault(hyps, refs):
    (hyps / "de.txt").write_bytes(b"\xff\n")
    assert faults_of(hyps, refs) == [
        f"{hyps}/de.txt line 1: byte 1 (0xff) is not UTF-8; save it as UTF-8"
    ]


@pytest.mark.parametrize(
    ("said", "wanted", "fault"),
    [
        (ENGLISH, ENGLISH, "h/de.txt has the references, line for line"),
        (GERMAN, ENGLISH, "h/de.txt has the sources, line for line"),
        ([""] * 20, ENGLISH, "h/de.txt has no text in any line"),
        ([*SAID[:16], *[" "] * 4], ENGLISH, "h/de.txt has no text in 4 of 20 lines"),
        (SAID, GERMAN, "r/de.txt has the sources; references must be the English side"),
        (SAID, ["1"] * 20, "r/de.txt has no letters; references must be English"),
        (
            SAID,
            ["красная роза"] * 20,
            "r/de.txt is written in Cyrl, not in English; references must be the English side",
        ),
        (
            SAID,
            [f"{line} auch" for line in GERMAN],
            "r/de.txt is in German (de), not in English; references must be the English side",
        ),
    ],
)
def test_files_that_look_mixed_up_are_refused(tmp_path, said, wanted, fault):
    hyps = write(tmp_path / "h", {"de.txt": said})
    refs = write(tmp_path / "r", {"de.txt": wanted})
    sources = write(tmp_path / "s", {"de.txt": GERMAN})
    identify = Identifier().language
    found = faults_of(hyps, refs, sources, identify=identify)
    assert found == [f"{tmp_path}/{fault}. If that is right, say --as-is"]
    (split,) = read(hyps, refs, sources, identify=identify, as_is=True)
    assert len(split.tasks[0].rows) == 20


def test_few_lines_may_all_be_alike(tmp_path):
    folder = write(tmp_path / "h", {"de.txt": ENGLISH[:19]})
    assert len(read(folder, folder)[0].tasks[0].rows) == 19


def test_prepared_data_has_references_and_sources(tmp_path, hyps):
    pairs = list(zip(GERMAN, ENGLISH, strict=True))
    splits = {"train": pairs, "test": pairs}
    texts = {"de": splits, "fr": {"train": pairs}}
    write_prepared(tmp_path / "prepared", texts, name="made")
    (split,) = read(hyps / "de.txt", tmp_path / "prepared", language="de")
    assert (split.tasks[0].rows[0].source, split.tasks[0].rows[0].reference) == pairs[0]
