"""Putting tasks and mixtures into seqio's registries: all that is asked, or nothing."""

import dataclasses
import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

import seqio

from gshard_m4 import languages, mixture
from gshard_m4.asked_languages import codes_in
from gshard_m4.input_error import InputError
from gshard_m4.rates import TEMPERATURE, temperature_rates
from gshard_m4.seqio_metrics import translation_metrics
from gshard_m4.tasks.sources import Columns, preprocessors
from gshard_m4.vocabulary import Vocabulary, tag

# Name in seqio's registries -> what it was registered for.
_REGISTERED: dict[str, Hashable] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """How mixtures take their rates from sizes, see `gshard_m4.mixture.temperature_rates`."""

    temperature: float = TEMPERATURE
    maximum: int | None = None
    minimum_share: float = 0.0


class Same:
    """Equal to what holds the very same object."""

    def __init__(self, held: object):
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._held is self._held

    def __hash__(self) -> int:
        return id(self._held)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is registered; `origins` tell whether a language's text is the same as before."""

    name: str
    sources: Mapping[str, seqio.DataSource]
    origins: Mapping[str, Hashable]
    counts: Mapping[str, int]
    source_vocabulary: Path
    target_vocabulary: Path
    lists: tuple[tuple[str, ...], ...]
    rates: Rates
    columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    source_tags: bool = False

    def task_name(self, code: str) -> str:
        """The name of a language's task."""
        return f"{self.name}_{code}_en"

    def task_identity(self, code: str) -> Hashable:
        """Equal where two tasks are the same."""
        models = self.source_vocabulary.absolute(), self.target_vocabulary.absolute()
        return self.origins[code], models, self.columns.get(code), self.source_tags


def add(plan: Plan) -> list[str]:
    """Registers what is not there yet, and returns all names.

    Raises:
        InputError: for vocabularies and lists that do not fit.
        ValueError: where seqio has something else under one of the names.
    """
    groups = _groups(plan)
    if faults := [*_vocabulary_faults(plan), *_list_faults(plan)]:
        raise InputError(f"tasks {plan.name!r}: {fault}" for fault in faults)
    mixtures = {
        name: _rates(plan, [code for code in codes if plan.counts.get(code)])
        for name, codes in groups.items()
    }
    tasks = {plan.task_name(code): code for code in plan.sources if _has_rows(plan, code)}
    wanted = {name: plan.task_identity(code) for name, code in tasks.items()}
    wanted |= {name: tuple(sorted(rates.items())) for name, rates in mixtures.items() if rates}
    there = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    if taken := [
        name for name in wanted if name in there and _REGISTERED.get(name) != wanted[name]
    ]:
        raise ValueError(
            f"tasks {plan.name!r}: seqio has something else under {len(taken)} of the names"
            f" ({', '.join(taken[:3])}{', ...' if len(taken) > 3 else ''}); give another name"
        )
    _add_tasks(plan, {name: code for name, code in tasks.items() if name not in there})
    for name, rates in mixtures.items():
        if rates and name not in there:
            seqio.MixtureRegistry.add(
                name, [(plan.task_name(code), rate) for code, rate in rates.items()]
            )
    _REGISTERED.update(wanted)
    _tell_left_out(plan, tasks.values())
    return list(wanted)


def _has_rows(plan: Plan, code: str) -> bool:
    return bool(plan.counts.get(code) or list(plan.sources[code].splits))


def _add_tasks(plan: Plan, tasks: Mapping[str, str]) -> None:
    """Registers tasks, which share one vocabulary a side."""
    models = {"inputs": plan.source_vocabulary, "targets": plan.target_vocabulary}
    features = {
        side: seqio.Feature(seqio.SentencePieceVocabulary(str(model)), add_eos=True)
        for side, model in models.items()
    }
    for name, code in tasks.items():
        seqio.TaskRegistry.add(
            name,
            source=plan.sources[code],  # pyright: ignore[reportArgumentType] (seqio's types)
            preprocessors=preprocessors(
                code,
                columns=plan.columns.get(code, ("inputs", "targets")),
                source_tags=plan.source_tags,
            ),
            output_features=features,
            metric_fns=[translation_metrics],
        )


def _groups(plan: Plan) -> dict[str, list[str]]:
    """Mixture -> its languages."""
    codes = list(plan.sources)
    bands = {one.code: one.band for one in languages.LANGUAGES}
    named = {mixture.ALL: codes} | {
        band: [code for code in codes if bands.get(code) == band] for band in mixture.BANDS
    }
    lists = [[_own_code(plan, asked) or asked for asked in chosen] for chosen in plan.lists]
    named |= {"_".join(chosen): chosen for chosen in lists}
    return {plan.name: codes} | {plan.task_name(group): found for group, found in named.items()}


def _rates(plan: Plan, codes: Sequence[str]) -> dict[str, float]:
    if not codes:
        return {}
    counts = {code: plan.counts[code] for code in codes}
    return temperature_rates(counts, **dataclasses.asdict(plan.rates))


def _list_faults(plan: Plan) -> list[str]:
    faults = []
    for chosen in plan.lists:
        listed = ", ".join(chosen)
        codes = [_own_code(plan, code) for code in chosen]
        unknown = [asked for asked, code in zip(chosen, codes, strict=True) if code is None]
        empty = [code for code in codes if code and not plan.counts.get(code)]
        if unknown:
            faults.append(f"no language {', '.join(unknown)} for the mixture of {listed}")
        if empty:
            faults.append(f"no training text in {', '.join(empty)} for the mixture of {listed}")
    return faults


def _own_code(plan: Plan, asked: str) -> str | None:
    """The plan's code of a language, by any code for it."""
    codes, _ = codes_in(plan.sources, [asked], "")
    return codes[0] if codes else None


def _vocabulary_faults(plan: Plan) -> list[str]:
    faults = []
    for path in (plan.source_vocabulary, plan.target_vocabulary):
        try:
            vocabulary = Vocabulary(path)
        except FileNotFoundError:
            faults.append(f"no vocabulary {str(path)!r}; gshard-m4 vocabulary makes it")
            continue
        except ValueError as error:
            faults.append(str(error))
            continue
        if plan.source_tags and path == plan.source_vocabulary:
            missing = [code for code in plan.sources if not vocabulary.has_piece(tag(code))]
            if missing:
                faults.append(
                    f"{str(path)!r} has no piece for the tags of {', '.join(missing)}; make it with"
                    " gshard-m4 vocabulary --tags"
                )
    return faults


def _tell_left_out(plan: Plan, with_rows: Iterable[str]) -> None:
    """Names languages that have no task, and those that are in no mixture."""
    has_task = set(with_rows)
    for what, codes in (
        ("no rows, so no task", [code for code in plan.sources if code not in has_task]),
        ("no training text, so in no mixture", [c for c in has_task if not plan.counts.get(c)]),
    ):
        if codes:
            logging.getLogger(__name__).warning(
                "tasks %r: %s: %s", plan.name, what, ", ".join(sorted(codes))
            )
