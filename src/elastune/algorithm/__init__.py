"""Which trials train next, and until when."""

from elastune.algorithm.asha import ASHA
from elastune.algorithm.base import Actions, Algorithm, Ended, Reported, Verdict, Woken
from elastune.algorithm.bohb import BOHB
from elastune.algorithm.elastic_grid import ElasticGrid
from elastune.algorithm.elastic_hyperband import ElasticHyperband
from elastune.algorithm.fifo import FIFO
from elastune.algorithm.halving import SuccessiveHalving
from elastune.algorithm.hyperband import Hyperband
from elastune.algorithm.hypersched import HyperSched
from elastune.algorithm.kfold import KFold
from elastune.algorithm.pbt import PBT
from elastune.algorithm.seer import SEER
from elastune.algorithm.single import SingleTrial
from elastune.algorithm.spottune import SpotTune
from elastune.algorithm.stages import Stages
from elastune.algorithm.sync_bohb import SyncBOHB
from elastune.spec import Run, Stage, TrialGroup

__all__ = [
    "ASHA",
    "BOHB",
    "FIFO",
    "PBT",
    "SEER",
    "Actions",
    "Algorithm",
    "ElasticGrid",
    "ElasticHyperband",
    "Ended",
    "HyperSched",
    "Hyperband",
    "KFold",
    "Reported",
    "Run",
    "SingleTrial",
    "SpotTune",
    "Stage",
    "Stages",
    "SuccessiveHalving",
    "SyncBOHB",
    "TrialGroup",
    "Verdict",
    "Woken",
]
