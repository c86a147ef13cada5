import pytest

from gshard_m4 import scripts


def test_letters_are_counted_by_script_and_nothing_else_is():
    text = "Ǆ-ab 12 яζ! ʼ𝐀½ 漢字ー仮かな カﾅ 한글 กำ ١ א्"
    assert scripts.script_counts(text) == {
        "Hani": 3, "Kana": 3, "Latn": 3, "Hang": 2, "Hira": 2, "Thai": 2,
        "Cyrl": 1, "Grek": 1, "Hebr": 1,
    }  # fmt: skip
    assert list(scripts.script_counts("яяa")) == ["Cyrl", "Latn"]
    assert scripts.script_counts("12, ½ …") == {}


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Sag mal: да", "Latn"),
        ("файл (a.txt)", "Cyrl"),
        ("表示するファイル", "Jpan"),
        ("新規作成の項目一覧表示", "Jpan"),
        ("파일 보기 圖", "Kore"),
        ("文件 README", "Latn"),
        ("显示文件", "Hani"),
        ("ファイル한글と", "Jpan"),
        ("ᠮᠣᠩᠭᠣᠯ", "Mong"),
        ("ߒߞߏ", "Nkoo"),
        ("ﷲ فتح", "Arab"),
        ("\U00017000", "Zzzz"),
        ("𐎠𐎡", "Zzzz"),
        ("12 : …", None),
        ("", None),
    ],
)
def test_the_main_script_is_the_one_most_letters_are_in(text, script):
    assert scripts.main_script(text) == script


def test_shares_are_of_letters_and_joined_scripts_have_all_their_characters():
    assert scripts.share_in("abc д 12", "Latn") == 0.75
    assert scripts.share_in("漢かナa", "Jpan") == 0.75
    assert scripts.share_in("漢かナa", "Hani") == 0.25
    assert scripts.share_in("한漢", "Kore") == 1.0
    assert scripts.share_in("한漢", "Hang") == 0.5
    assert scripts.share_in("国國a", "Hans") == scripts.share_in("国國a", "Hant") == 2 / 3
    assert scripts.share_in("12", "Latn") == 0.0


def test_a_script_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"^unknown script 'latin'; known are Adlm, Arab, Armn,"):
        scripts.share_in("a", "latin")


def test_simplified_and_traditional_chinese_are_told_apart_by_characters_of_one_of_them():
    assert scripts.chinese_script("显示语言的设置") == "Hans"
    assert scripts.chinese_script("顯示語言的設定") == "Hant"
    assert scripts.chinese_script("中文") is None
    assert scripts.chinese_script("国國") is None
    assert scripts.chinese_script("language") is None
