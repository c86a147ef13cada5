"""GShard's mixture-of-experts layer for Flax, and the parts it is made of."""

from importlib.metadata import version

from gshard_moe.capacity import capacity as capacity
from gshard_moe.capacity import explain_capacity as explain_capacity
from gshard_moe.dispatch import combine_einsum as combine_einsum
from gshard_moe.dispatch import combine_gather as combine_gather
from gshard_moe.dispatch import dispatch_einsum as dispatch_einsum
from gshard_moe.dispatch import dispatch_gather as dispatch_gather
from gshard_moe.expert_choice import expert_choice as expert_choice
from gshard_moe.finite import raise_if_not_finite as raise_if_not_finite
from gshard_moe.gating import probabilities as probabilities
from gshard_moe.gating import top1 as top1
from gshard_moe.gating import top2 as top2
from gshard_moe.gating import topk as topk
from gshard_moe.grouping import group as group
from gshard_moe.grouping import ungroup as ungroup
from gshard_moe.layer import MoELayer as MoELayer
from gshard_moe.losses import balance_loss as balance_loss
from gshard_moe.losses import router_z_loss as router_z_loss
from gshard_moe.output import MoEOutput as MoEOutput
from gshard_moe.output import auxiliary_loss as auxiliary_loss
from gshard_moe.routers import ExpertChoice as ExpertChoice
from gshard_moe.routers import Router as Router
from gshard_moe.routers import Top2 as Top2
from gshard_moe.routers import TopK as TopK
from gshard_moe.routing import ExpertRouting as ExpertRouting
from gshard_moe.routing import Routing as Routing
from gshard_moe.sorting import Sorted as Sorted
from gshard_moe.sorting import combine_sorted as combine_sorted
from gshard_moe.sorting import dispatch_sorted as dispatch_sorted
from gshard_moe.sorting import sort as sort
from gshard_moe.statistics import LabelStatistics as LabelStatistics
from gshard_moe.statistics import Statistics as Statistics
from gshard_moe.statistics import statistics as statistics
from gshard_moe.statistics import statistics_by_label as statistics_by_label
from gshard_moe.statistics import summary as summary

__version__ = version("gshard-moe")
