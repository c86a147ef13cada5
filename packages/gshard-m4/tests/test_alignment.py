import random

from gshard_m4.evaluation.alignment import explain, first_shifted_line, shifted

NAMES = ("hypotheses", "references")


def lines(count, seed=0):
    """Lines of words, most of which are in no other line."""
    draw = random.Random(seed)
    return [f"the {' '.join(f'w{draw.randint(0, 999)}' for _ in range(6))}" for _ in range(count)]


def test_place_of_a_line_that_is_missing():
    references = lines(60)
    said = [line.replace("w1", "q") for line in references]
    for place in (0, 17, 40):
        assert first_shifted_line(said[:place] + said[place + 1 :], references) == place + 1


def test_place_of_two_lines_that_are_missing():
    references = lines(60)
    assert first_shifted_line(references[:20] + references[22:], references) == 21


def test_what_does_not_show_is_not_claimed():
    assert first_shifted_line(lines(59, seed=1), lines(60, seed=2)) == 0
    references = lines(60)
    assert first_shifted_line(references[:59], references) == 0
    assert explain(lines(59, seed=1), references, NAMES) == ""


def test_lines_that_were_split_at_other_separators():
    references = ["one", "two\u2028three", "four"]
    assert explain(references, ["one", "two", "three", "four"], ("references", "hypotheses")) == (
        "line 2 of references holds a line separator that is not \\n, at which something has "
        "split it: split at \\n only"
    )


def test_blank_line():
    assert explain(["a", "b"], ["a", "", "b"], NAMES) == "line 2 of references is blank"


def test_shift_in_words():
    references = lines(40)
    said = references[:9] + references[10:]
    assert explain(said, references, NAMES) == "from line 10 on they are no longer about the same"


def test_side_that_is_cut_off():
    references = lines(40)
    said = [line.replace("w1", "q") for line in references[:31]]
    assert explain(said, references, NAMES) == (
        "they are about the same up to line 31, the last of hypotheses; line 32 of references is "
        "the first without one"
    )


def test_sides_of_the_same_length_that_lag_behind():
    references = lines(120)
    lost = [*references[:30], *references[31:], "the end"]
    assert (
        shifted(lost, references)
        == "says from line 31 on what the references say 1 line further down"
    )
    more = [*references[:50], "a", "b", *references[50:-2]]
    assert (
        shifted(more, references)
        == "says from line 51 on what the references say 2 lines further up"
    )
    repaired = [*references[:30], *references[31:91], "the end", *references[91:]]
    assert shifted(repaired, references) == (
        "says on lines 41 to 90 what the references say 1 line further down"
    )


def test_sides_of_the_same_length_that_do_not():
    references = lines(120)
    assert shifted(references, references) == ""
    assert shifted(lines(120, seed=1), references) == ""
    assert shifted(["the"] * 120, references) == ""
    assert shifted([*references[1:19], ""], references[:19]) == ""
