"""`lucerne.utils.tensorboard`: write logs that TensorBoard shows (`tensorboard --logdir runs`)."""

from __future__ import annotations

try:
    import tensorboard as _tensorboard  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lucerne.utils.tensorboard writes with the tensorboard package, which is not installed. "
        "Install it with `pip install lucerne[tensorboard]` or `pip install tensorboard`."
    ) from error

from lucerne.utils.tensorboard import summary as summary
from lucerne.utils.tensorboard.writer import FileWriter as FileWriter
from lucerne.utils.tensorboard.writer import RecordWriter as RecordWriter
from lucerne.utils.tensorboard.writer import SummaryWriter as SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
