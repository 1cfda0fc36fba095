"""Optimizers, learning-rate schedules and averaged models."""

from lucerne._src.optim.swap import (
    swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state,
)
from lucerne.optim import lr_scheduler as lr_scheduler
from lucerne.optim import swa_utils as swa_utils
from lucerne.optim._muon import Muon as Muon
from lucerne.optim.adadelta import Adadelta as Adadelta
from lucerne.optim.adafactor import Adafactor as Adafactor
from lucerne.optim.adagrad import Adagrad as Adagrad
from lucerne.optim.adam import Adam as Adam
from lucerne.optim.adamax import Adamax as Adamax
from lucerne.optim.adamw import AdamW as AdamW
from lucerne.optim.asgd import ASGD as ASGD
from lucerne.optim.lbfgs import LBFGS as LBFGS
from lucerne.optim.nadam import NAdam as NAdam
from lucerne.optim.optimizer import Optimizer as Optimizer
from lucerne.optim.radam import RAdam as RAdam
from lucerne.optim.rmsprop import RMSprop as RMSprop
from lucerne.optim.rprop import Rprop as Rprop
from lucerne.optim.sgd import SGD as SGD
from lucerne.optim.sparse_adam import SparseAdam as SparseAdam
