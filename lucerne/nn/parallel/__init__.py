"""`lucerne.nn.parallel`: a module on several devices."""

from lucerne.nn.parallel.data_parallel import DataParallel as DataParallel
from lucerne.nn.parallel.data_parallel import data_parallel as data_parallel
from lucerne.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
from lucerne.nn.parallel.parallel_apply import parallel_apply as parallel_apply
from lucerne.nn.parallel.replicate import replicate as replicate
from lucerne.nn.parallel.scatter_gather import gather as gather
from lucerne.nn.parallel.scatter_gather import scatter as scatter

DistributedDataParallelCPU = DistributedDataParallel
