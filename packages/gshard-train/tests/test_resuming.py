"""A feed that is another than the checkpoint's: refused with what differs, or as was chosen."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from gshard_train import agreement, resuming
from gshard_train.data import AnotherOrderError
from gshard_train.errors import UserError

SAVED = {"batch_size": 32, "maximum": None, "text of de": "70 pairs", "text of fr": "90 pairs"}


class Numbers:
    """Gives numbers; which, its identity says."""

    vocabulary_sizes: Mapping[str, int] = {"inputs": 23, "targets": 19}

    def __init__(self, identity: dict[str, Any], *, differs: bool = False):
        self.next_index, self._identity, self._differs = 0, identity, differs

    def __next__(self) -> dict:
        return {}

    def get_state(self) -> dict[str, Any]:
        return {"next_index": self.next_index}

    def set_state(self, state: dict[str, Any]) -> None:
        if set(state) != {"next_index"}:
            raise ValueError(f"set_state: expected next_index, got {state}")
        self.next_index = state["next_index"]
        if self._differs and self.next_index:
            raise AnotherOrderError("batch 6 is not what it was")

    def identity(self) -> dict[str, Any]:
        return self._identity

    def close(self) -> None:
        pass


def begins_anew(identity: dict[str, Any], choice: str, saved: dict | None = SAVED) -> bool:
    return resuming.begins_anew(Numbers(identity), saved, step=7, changed_feed=choice)


def test_the_same_feed_goes_on_whatever_is_chosen():
    for choice in resuming.CHOICES:
        assert not begins_anew({**SAVED}, choice)
        # Of an earlier version, and with a name that only a later one has.
        assert not begins_anew({**SAVED}, choice, saved=None)
        assert not begins_anew({**SAVED, "cut": None}, choice)


def test_another_feed_is_refused_with_what_differs_then_and_now():
    now = {"batch_size": 64, "maximum": 9, "text of de": "70 pairs", "text of is": "x" * 70}
    with pytest.raises(UserError) as refused:
        begins_anew(now, "refuse")
    first, *lines, choice = str(refused.value).split("\n")
    assert first == "the training feed is another than that of checkpoint 7:"
    assert lines == [
        "  batch_size: 32 then, 64 now",
        "  maximum: none then, 9 now",
        "  text of fr: 90 pairs then, none now",
        f"  text of is: none then, {'x' * 57}... now",
    ]
    assert "--gin.train.changed_feed=\"'go on'\"" in choice
    assert "\"'restart'\"" in choice
    with pytest.raises(UserError) as refused:
        begins_anew({**SAVED, **{f"text of {n}": "1" for n in range(50)}}, "refuse")
    assert "  text of 0, 1, 2, 3, 4, 5, 6, 7 and 42 more: none then, there now\n" in str(
        refused.value
    )


def test_another_feed_goes_on_or_begins_anew_as_chosen_and_the_log_says_so(caplog):
    now = {**SAVED, "batch_size": 64}
    with caplog.at_level(logging.WARNING):
        assert not begins_anew(now, "go on")
        assert begins_anew(now, "restart")
    kept, anew = (record.getMessage() for record in caplog.records)
    assert "batch_size: 32 then, 64 now" in kept
    assert kept.endswith("As changed_feed='go on' says, the position is kept.")
    assert anew.endswith("As changed_feed='restart' says, the data begin anew.")


@pytest.mark.parametrize(("choice", "index"), [("go on", 7), ("restart", 0)])
def test_text_that_is_not_what_was_read_is_refused_unless_chosen(choice, index):
    with pytest.raises(UserError, match="checkpoint 7: batch 6 is not what it was\nundo the"):
        resuming.go_to(Numbers({}, differs=True), {"next_index": 7}, step=7, changed_feed="refuse")
    feed = Numbers({}, differs=True)
    resuming.go_to(feed, {"next_index": 7}, step=7, changed_feed=choice)
    assert feed.next_index == index


def test_the_position_of_another_kind_of_feed_is_kept_as_far_as_both_know_it():
    feed, position = Numbers({}), {"next_index": 7, "batch_hash": "5e"}
    resuming.go_to(feed, position, step=7, changed_feed="go on")
    assert feed.next_index == 7
    with pytest.raises(UserError, match="expected next_index"):
        resuming.go_to(feed, position, step=7, changed_feed="refuse")


def test_a_position_of_another_kind_of_feed_is_a_users_error():
    with pytest.raises(UserError, match=r"expected next_index, got \{.shard.: 3\}"):
        resuming.go_to(Numbers({}), {"shard": 3}, step=7, changed_feed="refuse")


def test_what_another_process_finds_holds_for_all(monkeypatch):
    elsewhere = ["text of de: 70 pairs then, 71 pairs now"]
    monkeypatch.setattr(agreement, "gathered", lambda here: [here, elsewhere])
    with pytest.raises(UserError, match="text of de: 70 pairs then, 71 pairs now"):
        begins_anew({**SAVED}, "refuse")
    monkeypatch.setattr(agreement, "together", lambda go: go())
    monkeypatch.setattr(agreement, "gathered", lambda here: [here, "batch 6 is not what it was"])
    feed = Numbers({})
    resuming.go_to(feed, {"next_index": 7}, step=7, changed_feed="restart")
    assert feed.next_index == 0


def test_what_is_no_choice_is_refused():
    (fault,) = resuming.faults("reset")
    assert fault == "changed_feed='reset' must be one of 'refuse', 'go on', 'restart'"
    assert not list(resuming.faults("restart"))
