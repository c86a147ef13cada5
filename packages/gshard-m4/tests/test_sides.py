import functools

import pytest

from gshard_m4 import languages
from gshard_m4.evaluation.file_names import file_language
from gshard_m4.evaluation.sides import read_side


def write(folder, *names, text="a\nb\n"):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(text)
    return folder


def side_of(path, flag="hypotheses", **options):
    faults = []
    return read_side(path, flag, faults, **options), faults


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("de.txt", "de"),
        ("iw", "he"),
        ("hyp.de.txt", "de"),
        ("deu_Latn.devtest", "de"),
        ("newstest2019-ref.deu.txt", "de"),
        ("newstest2019-ref.fra-CA.txt", "fr"),
        ("de-en.jsonl", "de"),
        ("wmt.en-de.de", "de"),
        ("wmt.en-de.en", "de"),
        ("newstest2019-ref.de-en.txt.gz", "de"),
        ("deu_Latn-eng_Latn.txt", "de"),
        ("test.de-en.de", "de"),
        ("m4_sample_zh_en.jsonl", "zh"),
        ("af.en", "af"),
        ("scores.txt", None),
        ("README", None),
    ],
)
def test_language_of_a_file(name, code):
    found = file_language(name)
    assert (found and found.code) == code


def test_names_that_are_refused():
    with pytest.raises(
        ValueError, match=r"^its name gives Burmese \(my\) and German \(de\); rename"
    ):
        file_language("my.de.txt")
    with pytest.raises(ValueError, match="keep the two apart"):
        file_language("zh-TW.txt")
    with pytest.raises(ValueError, match=r"^language 'eng-IN' is English"):
        file_language("newstest2019-ref.eng-IN.txt")
    with pytest.raises(
        ValueError,
        match=r"^its name says English into German; translations into English are read here, "
        r"named such as de\.txt$",
    ):
        file_language("en-de.txt.gz")


def test_folder_of_languages(tmp_path):
    folder = write(tmp_path / "hyps", "de.txt", "jw.txt.de_DE", ".hidden", "README.md")
    (folder / "jw.txt.de_DE").rename(folder / "jw.txt")
    side, faults = side_of(folder)
    assert faults == []
    assert list(side.by_code) == ["de", "jv"]
    assert [record.fields["prediction"] for record in side.by_code["de"].records] == ["a", "b"]


def test_folder_faults_come_all_at_once(tmp_path):
    folder = write(tmp_path / "hyps", "de.txt", "deu.txt", "xyz.txt", "oci.txt", "eng.txt")
    _, faults = side_of(folder)
    assert [fault.removeprefix(f"{folder}/") for fault in faults] == [
        "deu.txt and de.txt are both German (de); remove one",
        "eng.txt: language 'eng' is English, which all are translated into",
        "oci.txt: language 'oci' is Occitan, not one of M4's 102; --any-language (others=True) "
        "takes it all the same",
        "xyz.txt: unknown language 'xyz', not one of M4's 102; name files by language, such as "
        "de.txt",
    ]


def test_a_folder_of_something_else_is_one_fault(tmp_path):
    folder = write(tmp_path / "x", *(f"scores{i}.json" for i in range(7)), "de.txt")
    (folder / "de.txt").write_bytes(b"\xff")
    assert side_of(folder)[1] == [
        f"--hypotheses={folder}: 7 of its 8 files have no language in their names, such as "
        "scores0.json, scores1.json, scores2.json, scores3.json, scores4.json; name them by "
        "language, such as de.txt, or give another folder"
    ]


def test_any_language_takes_other_languages_and_scripts(tmp_path):
    folder = write(tmp_path / "hyps", "oci.txt", "zh-TW.txt")
    find = functools.partial(languages.find, variants=True, others=True)
    side, faults = side_of(folder, find=find)
    assert (list(side.by_code), faults) == (["oc", "zh_Hant"], [])


def test_folder_without_files(tmp_path):
    write(tmp_path / "hyps").joinpath("dev").mkdir()
    assert side_of(tmp_path / "hyps")[1] == [
        f"--hypotheses={tmp_path}/hyps holds no files; it has the folders dev: give one of them"
    ]
    assert side_of(tmp_path / "none")[1] == [f"--hypotheses={tmp_path}/none does not exist"]


def test_flores_and_ntrex_have_one_english_for_all(tmp_path):
    flores = write(tmp_path / "devtest", "eng_Latn.devtest", "deu_Latn.devtest", "oci_Latn.devtest")
    side, faults = side_of(flores, "references")
    assert faults == []
    assert side.shared is not None
    assert side.shared.path.name == "eng_Latn.devtest"
    assert {code: path.name for code, path in side.beside.items()} == {"de": "deu_Latn.devtest"}
    names = ["src.eng", "ref.eng-GB", "ref.fra", "ref.fra-CA", "ref.zho-CN", "ref.zho-TW"]
    ntrex = write(tmp_path / "ntrex", *(f"newstest2019-{name}.txt" for name in names))
    side, faults = side_of(ntrex, "references")
    assert faults == []
    assert side.shared is not None
    assert side.shared.path.name == "newstest2019-src.eng.txt"
    assert {code: path.name.split(".")[1] for code, path in side.beside.items()} == {
        "fr": "fra",
        "zh": "zho-CN",
    }


def test_references_by_language(tmp_path):
    side, faults = side_of(write(tmp_path / "refs", "af.en", "de-en.en"), "references")
    assert (list(side.by_code), side.shared, faults) == (["af", "de"], None, [])


def test_two_english_files_are_a_question(tmp_path):
    folder = write(tmp_path / "refs", "en.txt", "eng.txt")
    assert side_of(folder, "references")[1] == [
        f"--references={folder}: which is the English of all languages, en.txt, eng.txt? Give that "
        "file, and the folder as --sources"
    ]


def test_single_files(tmp_path):
    path = write(tmp_path / "x", "out.txt") / "out.txt"
    side, faults = side_of(path, language=languages.find("de"))
    assert (list(side.by_code), faults) == (["de"], [])
    side, faults = side_of(path, "references")
    assert (side.shared and side.shared.path, faults) == (path, [])
    assert side_of(path)[1] == [
        f"--hypotheses={path}: of which language? Name it with --language, add a language to every "
        "line, or give a folder with a file for each"
    ]
    assert side_of(path.parent, language=languages.find("de"))[1] == [
        f"--hypotheses={path.parent} is a folder; --language is for a single file"
    ]


def test_lines_that_name_their_language(tmp_path):
    path = tmp_path / "all.jsonl"
    lines = ['{"text": "a", "lang": "de"}', '{"text": "b", "lang": "iw"}']
    path.write_text("\n".join([*lines, '{"text": "c", "lang": "de"}']))
    side, faults = side_of(path)
    assert faults == []
    assert {code: len(text.records) for code, text in side.by_code.items()} == {"de": 2, "he": 1}
    path.write_text("\n".join([*lines, '{"text": "c", "lang": "qq"}']))
    assert side_of(path)[1] == [f"{path} line 3: unknown language 'qq', not one of M4's 102"]
    path.write_text("\n".join([*lines, '{"text": "c"}']))
    assert side_of(path)[1] == [f"{path} line 3: no language, other lines have one"]


def test_one_language_under_two_codes_is_refused(tmp_path):
    path = tmp_path / "all.jsonl"
    lines = [f'{{"text": "{code}", "lang": "{code}"}}' for code in ("iw", "he", "he", "de")]
    path.write_text("\n".join(lines))
    assert side_of(path)[1] == [
        f"{path} line 2: language 'he' is he, which earlier lines call 'iw'; write one of them"
    ]


def test_lines_of_another_language_than_their_file(tmp_path):
    lines = [f'{{"text": "a", "lang": "{code}"}}\n' for code in ("de", "fr", "en", "fra")]
    folder = write(tmp_path / "hyps", "de.jsonl", text="".join(lines))
    wrong = [
        f"{folder}/de.jsonl line 2: language 'fr', the file's name says de",
        f"{folder}/de.jsonl line 4: language 'fra', the file's name says de",
    ]
    assert side_of(folder)[1] == wrong
    assert side_of(folder, "references")[1] == wrong
    path = tmp_path / "hyps" / "de.jsonl"
    path.write_text("".join(lines[:2]))
    assert side_of(path, language=languages.find("de"))[1] == [
        f"{path} line 2: language 'fr', --language says de; --languages chooses from several"
    ]
    assert side_of(path, "references", language=languages.find("de"))[1] == []
    english = write(tmp_path / "refs", "en.jsonl", text=lines[2] + lines[0])
    assert side_of(english, "references")[1] == [
        f"{english}/en.jsonl line 2: language 'de', the file's name says English"
    ]


def test_nothing_vanishes_from_a_folder_of_translations(tmp_path):
    folder = write(tmp_path / "hyps", "de.txt", "_fr.txt", "experts.json")
    write(folder / "more", "it.txt")
    write(folder / "report", "report.html")
    (folder / "ru").symlink_to("gone")
    assert side_of(folder)[1] == [
        f"{folder}/more is a folder, which is not read; move it elsewhere",
        f"{folder}/ru is a link to gone, which is not there",
        f"{folder}/_fr.txt: unknown language '_fr', not one of M4's 102; name files by language, "
        "such as de.txt",
    ]
