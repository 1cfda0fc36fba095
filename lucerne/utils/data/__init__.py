"""`lucerne.utils.data`: datasets, samplers, and the loader that makes batches of them."""

from lucerne.utils.data import _utils as _utils
from lucerne.utils.data import dataloader as dataloader
from lucerne.utils.data import dataset as dataset
from lucerne.utils.data import distributed as distributed
from lucerne.utils.data import sampler as sampler
from lucerne.utils.data._utils.collate import default_collate as default_collate
from lucerne.utils.data._utils.collate import default_convert as default_convert
from lucerne.utils.data._utils.worker import get_worker_info as get_worker_info
from lucerne.utils.data.dataloader import DataLoader as DataLoader
from lucerne.utils.data.dataloader import _DatasetKind as _DatasetKind
from lucerne.utils.data.datapipes import iter as _iter_pipes  # noqa: F401  (registers methods)
from lucerne.utils.data.datapipes import map as _map_pipes  # noqa: F401
from lucerne.utils.data.datapipes._decorator import argument_validation as argument_validation
from lucerne.utils.data.datapipes._decorator import functional_datapipe as functional_datapipe
from lucerne.utils.data.datapipes._decorator import (
    guaranteed_datapipes_determinism as guaranteed_datapipes_determinism,
)
from lucerne.utils.data.datapipes._decorator import non_deterministic as non_deterministic
from lucerne.utils.data.datapipes._decorator import runtime_validation as runtime_validation
from lucerne.utils.data.datapipes._decorator import (
    runtime_validation_disabled as runtime_validation_disabled,
)
from lucerne.utils.data.datapipes.datapipe import DataChunk as DataChunk
from lucerne.utils.data.datapipes.datapipe import DFIterDataPipe as DFIterDataPipe
from lucerne.utils.data.datapipes.datapipe import IterDataPipe as IterDataPipe
from lucerne.utils.data.datapipes.datapipe import MapDataPipe as MapDataPipe
from lucerne.utils.data.dataset import ChainDataset as ChainDataset
from lucerne.utils.data.dataset import ConcatDataset as ConcatDataset
from lucerne.utils.data.dataset import Dataset as Dataset
from lucerne.utils.data.dataset import IterableDataset as IterableDataset
from lucerne.utils.data.dataset import StackDataset as StackDataset
from lucerne.utils.data.dataset import Subset as Subset
from lucerne.utils.data.dataset import TensorDataset as TensorDataset
from lucerne.utils.data.dataset import random_split as random_split
from lucerne.utils.data.distributed import DistributedSampler as DistributedSampler
from lucerne.utils.data.sampler import BatchSampler as BatchSampler
from lucerne.utils.data.sampler import RandomSampler as RandomSampler
from lucerne.utils.data.sampler import Sampler as Sampler
from lucerne.utils.data.sampler import SequentialSampler as SequentialSampler
from lucerne.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from lucerne.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler
