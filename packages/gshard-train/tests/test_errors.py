"""Faults that the user can mend."""

import pytest

from gshard_train.errors import UserError, did_you_mean, message, report, reported_as_user_error


def test_each_fault_is_a_line_with_the_programs_name():
    error = UserError("first", "second\n  more of it")
    assert report("gshard-train", error) == (
        "gshard-train: first\ngshard-train: second\ngshard-train:   more of it"
    )


def test_notes_of_gin_are_left_out():
    assert message(ValueError("wrong\n  In call to configurable 'f' (<function f>)")) == "wrong"
    assert message(KeyError()) == "KeyError"


@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError, PermissionError])
def test_set_up_errors_become_the_users(kind):
    with pytest.raises(UserError, match=r"^mend this$"), reported_as_user_error():
        raise kind("mend this")


def test_user_errors_keep_their_faults_and_others_their_kind():
    with pytest.raises(UserError) as caught, reported_as_user_error():
        raise UserError("a", "b")
    assert caught.value.faults == ("a", "b")
    with pytest.raises(RuntimeError), reported_as_user_error():
        raise RuntimeError


def test_nearest_name_whatever_its_case():
    assert (
        did_you_mean("train_steps", ["MODEL_DIR", "TRAIN_STEPS"]) == "; did you mean TRAIN_STEPS?"
    )
    assert did_you_mean("zzz", ["MODEL_DIR"]) == ""
