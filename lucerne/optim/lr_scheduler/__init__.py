"""Learning-rate schedules: call `scheduler.step()` after `optimizer.step()`."""

from lucerne.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from lucerne.optim.lr_scheduler.base import LRScheduler as LRScheduler
from lucerne.optim.lr_scheduler.base import LRScheduler as _LRScheduler  # noqa: F401
from lucerne.optim.lr_scheduler.chains import ChainedScheduler as ChainedScheduler
from lucerne.optim.lr_scheduler.chains import SequentialLR as SequentialLR
from lucerne.optim.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,  # fmt: skip
)
from lucerne.optim.lr_scheduler.cycles import CyclicLR as CyclicLR
from lucerne.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from lucerne.optim.lr_scheduler.decay import ConstantLR as ConstantLR
from lucerne.optim.lr_scheduler.decay import CosineAnnealingLR as CosineAnnealingLR
from lucerne.optim.lr_scheduler.decay import ExponentialLR as ExponentialLR
from lucerne.optim.lr_scheduler.decay import LambdaLR as LambdaLR
from lucerne.optim.lr_scheduler.decay import LinearLR as LinearLR
from lucerne.optim.lr_scheduler.decay import MultiplicativeLR as MultiplicativeLR
from lucerne.optim.lr_scheduler.decay import MultiStepLR as MultiStepLR
from lucerne.optim.lr_scheduler.decay import PolynomialLR as PolynomialLR
from lucerne.optim.lr_scheduler.decay import StepLR as StepLR
from lucerne.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
