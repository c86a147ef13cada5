import re

import pytest
import sentencepiece

from gshard_m4.corpus import SPLITS
from gshard_m4.sample.corpus import corpus
from gshard_m4.vocabulary import EOS, PAD, UNK, Vocabulary, normalize, tag, train

TEXTS = [f"{a} {b} arrow" for a in ("red", "green", "left") for b in ("up", "down", "heart")]


@pytest.fixture(scope="module")
def source():
    return Vocabulary(corpus().source_vocabulary)


@pytest.fixture(scope="module")
def target():
    return Vocabulary(corpus().target_vocabulary)


def test_sizes_are_multiples_of_what_a_mesh_divides(source, target):
    assert (source.size, target.size) == (12288, 1536)


def test_every_text_of_the_sample_comes_back_without_unknown_pieces(source, target):
    for splits in corpus().pairs.values():
        for name in SPLITS:
            for side, vocabulary in enumerate((source, target)):
                texts = [pair[side] for pair in splits[name]]
                for text, ids in zip(texts, vocabulary.encode_batch(texts), strict=True):
                    assert UNK not in ids
                    assert vocabulary.decode(ids) == text


def test_most_phrases_are_short(source, target):
    pairs = [pair for splits in corpus().pairs.values() for pair in splits["test"]]
    for side, vocabulary, most in ((0, source, 16), (1, target, 12)):
        lengths = sorted(len(i) + 1 for i in vocabulary.encode_batch([p[side] for p in pairs]))
        assert lengths[len(lengths) // 2] <= 7
        assert sum(length <= most for length in lengths) / len(lengths) > 0.95


def test_decoding_ends_at_end_of_sentence_and_skips_padding(target):
    ids = target.encode_batch(["red rose"])[0]
    assert target.decode([PAD, *ids, UNK, 99999, EOS, *ids]) == "red rose"
    assert target.decode([]) == ""


def test_invisible_characters_and_other_spaces_do_not_change_the_ids(source):
    plain, same = source.encode_batch(
        ["visage : neutre", "\u200fvisage\u00a0: neu\u00adtre\u200b "]
    )
    assert plain == same
    assert normalize("\u200fvisage\u00a0: neu\u00adtre\u200b ") == "visage : neutre"
    assert normalize("می\u200cخواهم") == "می\u200cخواهم"


def test_characters_that_training_never_saw_become_bytes(source):
    assert source.decode(source.encode_batch(["𓀀 and 𝄞"])[0]) == "𓀀 and 𝄞"


def test_a_trained_model_has_the_size_and_ids_that_were_asked_for(tmp_path):
    train(TEXTS, tmp_path / "x.model", size=23, character_coverage=1.0, required_chars="z")
    vocabulary = Vocabulary(tmp_path / "x.model")
    assert vocabulary.size == 23
    assert vocabulary.decode(vocabulary.encode_batch(["green zed arrow"])[0]) == "green zed arrow"
    assert vocabulary.byte_ids == set()


def test_tags_are_pieces_of_their_own_wherever_they_stand(tmp_path):
    tags = [tag("de"), tag("sr_Latn")]
    assert tags == ["<2de>", "<2sr_Latn>"]
    train(TEXTS, tmp_path / "x.model", size=24, character_coverage=1.0, user_defined_symbols=tags)
    vocabulary = Vocabulary(tmp_path / "x.model")
    with_tag, without = vocabulary.encode_batch(["<2sr_Latn> red heart", "red heart"])
    assert with_tag[1:] == [4, *without]
    assert [vocabulary.has_piece(piece) for piece in (*tags, "<2fr>")] == [True, True, False]
    assert vocabulary.decode(with_tag) == "<2sr_Latn> red heart"


def test_the_same_texts_give_the_same_model(tmp_path):
    for name in ("a", "b"):
        train(iter(TEXTS), tmp_path / name, size=22, character_coverage=1.0)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_text_of_any_length_is_learnt_from(tmp_path):
    train([*TEXTS, "§" * 5000], tmp_path / "x.model", size=24, character_coverage=1.0)
    assert UNK not in Vocabulary(tmp_path / "x.model").encode_batch(["§"])[0]


@pytest.mark.parametrize(
    ("texts", "options", "fault"),
    [
        (
            ["left arrow"],
            {"size": 500},
            "cannot learn 500 pieces from 1 text: the largest size that this text gives is 12",
        ),
        (
            TEXTS,
            {"size": 100, "byte_fallback": True},
            "cannot learn 100 pieces from 9 texts: its characters alone take 274; use at least that"
            " size, or a lower character coverage",
        ),
        ([], {"size": 9}, "cannot learn 9 pieces from 0 texts: there is nothing to learn from"),
    ],
)
def test_a_size_that_does_not_fit_the_text_is_refused_and_leaves_the_old_file(
    tmp_path, texts, options, fault
):
    path = tmp_path / "x.model"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=f"^vocabulary: {re.escape(fault)}$"):
        train(texts, path, **options)
    assert path.read_bytes() == b"old"


def test_an_error_of_the_texts_is_not_taken_for_one_of_learning(tmp_path):
    def texts():
        yield "left arrow"
        raise OSError("disk")

    with pytest.raises(OSError, match=r"^disk$"):
        train(texts(), tmp_path / "x.model", size=9)
    assert not (tmp_path / "x.model").exists()


def test_missing_and_broken_files_are_named(tmp_path):
    path = tmp_path / "none.model"
    message = f"vocabulary: no file '{path}'; give the path of a SentencePiece .model"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        Vocabulary(path)
    path.write_bytes(b"not a model")
    with pytest.raises(ValueError, match=re.escape(f"'{path}' is not a SentencePiece model")):
        Vocabulary(path)


def test_an_old_sentencepiece_is_named(tmp_path, monkeypatch):
    def old(**options):
        raise TypeError("SentencePieceNormalizer.Init() got an unexpected keyword argument")

    monkeypatch.setattr(sentencepiece, "SentencePieceNormalizer", old)
    monkeypatch.setattr(sentencepiece, "__version__", "0.2.1")
    message = (
        "learning a vocabulary needs sentencepiece 0.2.3, 0.2.1 is installed, as the extra"
        " gshard-m4[beam] has it; learn in an environment without Beam (models can be used with"
        " both)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(TEXTS, tmp_path / "x.model", size=22)
