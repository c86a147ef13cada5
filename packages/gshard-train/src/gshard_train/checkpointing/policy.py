"""Which checkpoints of a run stay."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from orbax.checkpoint.checkpoint_managers import preservation_policy as policies

from gshard_train.errors import UserError, did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """Checkpoints that stay: what any of the rules asks for.

    Attributes:
      newest: that many of the newest.
      every_steps: each whose step is a multiple of it.
      best: that many of those with the best `metric`; the others have none of their own.
      metric: a figure of the evaluation, such as "eval/all/loss".
      highest: whether the best metric is the highest; otherwise the lowest.
    """

    newest: int = 3
    every_steps: int | None = None
    best: int = 0
    metric: str | None = None
    highest: bool = False

    def __post_init__(self):
        if faults := list(self._faults()):
            raise UserError(*(f"Kept: {fault}" for fault in faults))

    def _faults(self) -> Iterator[str]:
        if self.newest < 1:
            yield f"newest={self.newest} must be at least 1: a run goes on from the newest"
        if self.every_steps is not None and self.every_steps < 1:
            yield f"every_steps={self.every_steps} must be at least 1, or None"
        if self.best < 0:
            yield f"best={self.best} must be at least 0"
        if self.best and not self.metric:
            yield f"best={self.best} needs metric=, a figure such as 'eval/all/loss'"
        if self.metric and not self.best:
            yield f"metric={self.metric!r} needs best=, how many of the best to keep"

    def check(self, metrics: Mapping[str, float]) -> None:
        """Raises where these figures of a checkpoint lack the one that decides.

        Raises:
          UserError: naming those that there are.
        """
        if self.metric and self.metric not in metrics:
            near = did_you_mean(self.metric, metrics) or "."
            raise UserError(
                f"Kept.metric={self.metric!r} is not among the figures of the evaluation{near} "
                f"There are {', '.join(metrics)}. The checkpoint is saved"
            )

    def goodness(self, metrics: Mapping[str, float] | None) -> float:
        """How good a checkpoint with these figures is; the higher the better."""
        value = (metrics or {}).get(self.metric or "", math.nan)
        if math.isnan(value):
            return -math.inf
        return value if self.highest else -value

    def policy(self) -> policies.PreservationPolicy:
        """The same for orbax."""
        rules: list[policies.PreservationPolicy] = [policies.LatestN(n=self.newest)]
        if self.every_steps:
            rules.append(policies.EveryNSteps(self.every_steps))
        if self.best:
            rules.append(
                policies.BestN(
                    get_metric_fn=self.goodness, n=self.best, keep_checkpoints_without_metrics=False
                )
            )
        return policies.AnyPreservationPolicy(rules)
