"""The training feed at the place where a checkpoint left it, if it still is the same feed.

Whether it is tells what the order of its examples depends on, its `identity`, and the feed itself
where going to a position shows it. Several processes decide together: what one finds holds for all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from absl import logging

from gshard_train import agreement
from gshard_train.checkpointing import refusal
from gshard_train.data import AnotherOrderError, Feed
from gshard_train.errors import UserError, reported_as_user_error

REFUSE, GO_ON, RESTART = CHOICES = ("refuse", "go on", "restart")
_WIDTH = 60  # characters of a value
_ALIKE = 3  # names of one kind, such as languages, that are told in one line
_NAMED = 8  # of them
_CHOICE = (
    "to go on at the same number of batches, where examples may come again or never, add "
    f"--gin.train.changed_feed=\"'{GO_ON}'\"; to begin the data anew \"'{RESTART}'\""
)


def faults(changed_feed: object) -> Iterator[str]:
    """A sentence for what is none of the choices."""
    if changed_feed not in CHOICES:
        yield f"changed_feed={changed_feed!r} must be one of {', '.join(map(repr, CHOICES))}"


def begins_anew(
    feed: Feed, saved: Mapping[str, Any] | None, *, step: int, changed_feed: str
) -> bool:
    """Whether the data begin anew, because the feed is another than the checkpoint's.

    Args:
      feed: which has not gone to a position yet.
      saved: the identity that the checkpoint has; None where it has none.
      step: the checkpoint's.
      changed_feed: one of `CHOICES`.

    Raises:
      UserError: it is another feed and that is refused; names what differs, then and now.
    """
    with reported_as_user_error():
        now = getattr(feed, "identity", dict)()
    lines = next(filter(None, agreement.gathered(differences(saved or now, now))), [])
    if not saved:
        logging.info("Checkpoint %d does not say what its order of examples depended on.", step)
    if not lines:
        return False
    first = f"the training feed is another than that of checkpoint {step}:"
    said = "\n".join([first, *refusal.shortened(lines)])
    return _chosen(said, changed_feed) == RESTART


def go_to(feed: Feed, position: dict[str, Any], *, step: int, changed_feed: str) -> None:
    """Brings the feed to a checkpoint's position.

    Raises:
      UserError: what was read before the position is not what the run had read, and that is
        refused; or the position is none of this feed's.
    """
    beginning = feed.get_state()
    if changed_feed == GO_ON:  # of another kind of feed: what its position has and this one knows
        position = {name: position[name] for name in beginning if name in position} or position
    found = next(filter(None, agreement.gathered(_went(feed, position))), None)
    if found and _chosen(f"checkpoint {step}: {found}", changed_feed) == RESTART:
        feed.set_state(beginning)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each name whose value differs; what is not there is as None.

    Names that are alike but for their last word, and differ in the same way, have one together.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for name in {**then, **now}:
        if then.get(name) != now.get(name):
            kind = (name.rpartition(" ")[0] or name, _way(then.get(name), now.get(name)))
            alike.setdefault(kind, []).append(name)
    return [
        line for (of, way), names in alike.items() for line in _lines(of, way, names, then, now)
    ]


def _way(then: Any, now: Any) -> str:
    """How a value differs, in words for several."""
    if now is None:
        return "there then, none now"
    return "none then, there now" if then is None else "other ones now"


def _lines(
    of: str, way: str, names: list[str], then: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
    if len(names) < _ALIKE:
        return [
            f"{name}: {_text(then.get(name))} then, {_text(now.get(name))} now" for name in names
        ]
    last = [name.rpartition(" ")[2] for name in names]
    more = f" and {len(last) - _NAMED} more" if len(last) > _NAMED else ""
    return [f"{of} {', '.join(last[:_NAMED])}{more}: {way}"]


def _went(feed: Feed, position: dict[str, Any]) -> str | None:
    """What going to a position showed of the data."""

    def go() -> str | None:
        try:
            with reported_as_user_error():
                feed.set_state(position)
        except AnotherOrderError as error:
            return str(error)
        return None

    return agreement.together(go)


def _chosen(said: str, changed_feed: str) -> str:
    """The choice, told in the log, where it is not to refuse."""
    if changed_feed == REFUSE:
        raise UserError(f"{said}\nundo the change; or, {_CHOICE}")
    what = "the data begin anew" if changed_feed == RESTART else "the position is kept"
    logging.warning("%s\nAs changed_feed=%r says, %s.", said, changed_feed, what)
    return changed_feed


def _text(value: Any) -> str:
    if value is None:
        return "none"
    text = str(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
