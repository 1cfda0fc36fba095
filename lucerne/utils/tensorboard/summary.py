"""Values as the messages of TensorBoard's event files."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import metadata as custom_scalar_metadata
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.pr_curve import metadata as pr_curve_metadata
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from lucerne._src.tensor import api as lu
from lucerne.utils.tensorboard import images

Array = np.ndarray[Any, Any]
_DT_FLOAT, _DT_DOUBLE, _DT_STRING = 1, 2, 7


def array(value: Any) -> Array:
    """A tensor, array, list or number as an array."""
    if isinstance(value, lu.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype is lu.bfloat16 else value).numpy()
    return np.asarray(value)


def number(value: Any) -> float:
    """A number, or the element of a tensor that has only one."""
    found = array(value)
    if found.size != 1:
        raise ValueError(f"scalar should be 0D: it has shape {found.shape}")
    return float(found.reshape(()))


def scalar(name: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """A number at a step."""
    found = number(value)
    if not new_style:
        return Summary(value=[Summary.Value(tag=name, simple_value=found)])
    if double_precision:
        tensor = TensorProto(double_val=[found], dtype=_DT_DOUBLE)
    else:
        tensor = TensorProto(float_val=[found], dtype=_DT_FLOAT)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    return Summary(value=[Summary.Value(tag=name, tensor=tensor, metadata=metadata)])


def default_bins() -> Array:
    """Edges that grow by a tenth, from 1e-12 to 1e20 to both sides."""
    positive = 1e-12 * 1.1 ** np.arange(int(np.log(1e32) / np.log(1.1)))
    return np.concatenate([-positive[::-1], [0.0], positive])


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How often values fall between the edges."""
    found = array(values).astype(np.float64).reshape(-1)
    if found.size == 0:
        raise ValueError("The input has no element.")
    edges = default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, limits = np.histogram(found, bins=edges)
    if max_bins is not None and len(counts) > max_bins:
        step = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, range(0, len(counts), step))
        limits = np.append(limits[:-1:step], limits[-1])
    filled = np.flatnonzero(counts)
    if filled.size == 0:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = filled[0], filled[-1] + 1
    # A bucket of zero in front says where the first one begins.
    counts = np.concatenate([[0], counts[first:last]])
    return histogram_raw(
        name,
        found.min(),
        found.max(),
        found.size,
        found.sum(),
        found @ found,
        limits[first : last + 1],
        counts,
    )


def histogram_raw(
    name: str,
    min: Any,
    max: Any,
    num: Any,
    sum: Any,
    sum_squares: Any,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Any:
    """A histogram that was counted elsewhere: `bucket_limits` are upper edges."""
    message = HistogramProto(
        min=float(min),
        max=float(max),
        num=float(num),
        sum=float(sum),
        sum_squares=float(sum_squares),
        bucket_limit=[float(x) for x in bucket_limits],
        bucket=[float(x) for x in bucket_counts],
    )
    return Summary(value=[Summary.Value(tag=name, histo=message)])


def image(tag: str, tensor: Any, dataformats: str) -> Any:
    """An image, or a batch of them on one sheet."""
    pixels = images.as_bytes(images.to_rows_columns_channels(array(tensor), dataformats))
    height, width, channels = pixels.shape
    return encoded_image(tag, images.png(pixels), height, width, channels)


def encoded_image(tag: str, file: bytes, height: int, width: int, channels: int) -> Any:
    """An image that is a PNG file already."""
    message = Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file
    )
    return Summary(value=[Summary.Value(tag=tag, image=message)])


def audio(tag: str, tensor: Any, sample_rate: int) -> Any:
    """A sound."""
    samples = array(tensor).astype(np.float64).reshape(-1)
    message = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(samples),
        encoded_audio_string=images.wav(samples, sample_rate),
        content_type="audio/wav",
    )
    return Summary(value=[Summary.Value(tag=tag, audio=message)])


def text(tag: str, string: str) -> Any:
    """A text, shown as Markdown."""
    data = SummaryMetadata.PluginData(
        plugin_name="text", content=TextPluginData(version=0).SerializeToString()
    )
    tensor = TensorProto(
        dtype=_DT_STRING,
        string_val=[string.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    metadata = SummaryMetadata(plugin_data=data)
    value = Summary.Value(tag=tag + "/text_summary", metadata=metadata, tensor=tensor)
    return Summary(value=[value])


def pr_curve_raw(tag: str, rows: Array, num_thresholds: int) -> Any:
    """Six rows: true and false positives, true and false negatives, precision, recall."""
    metadata = pr_curve_metadata.create_summary_metadata(
        display_name=tag, description="", num_thresholds=num_thresholds
    )
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in rows.shape])
    tensor = TensorProto(
        dtype=_DT_FLOAT, float_val=[float(x) for x in rows.reshape(-1)], tensor_shape=shape
    )
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int, weights: Any) -> Any:
    """Precision and recall at thresholds from 0 to 1."""
    truth, score = array(labels).reshape(-1).astype(bool), array(predictions).reshape(-1)
    weight = np.ones(len(score)) if weights is None else array(weights).reshape(-1)
    found = score[None] >= np.linspace(0, 1, num_thresholds)[:, None]
    tp = (found & truth) @ weight
    fp = (found & ~truth) @ weight
    tn = (~found & ~truth) @ weight
    fn = (~found & truth) @ weight
    tiny = 1e-7
    precision, recall = tp / np.maximum(tiny, tp + fp), tp / np.maximum(tiny, tp + fn)
    return pr_curve_raw(tag, np.stack([tp, fp, tn, fn, precision, recall]), num_thresholds)


def hparams(
    hparam_dict: dict[str, Any], metric_dict: dict[str, Any], domains: Any = None
) -> tuple[Any, Any, Any]:
    """Three messages: the experiment, the start of a session, its end."""
    if not isinstance(hparam_dict, dict):
        raise TypeError("parameter: hparam_dict should be a dictionary, nothing logged.")
    if not isinstance(metric_dict, dict):
        raise TypeError("parameter: metric_dict should be a dictionary, nothing logged.")
    values = {k: _hparam(v) for k, v in hparam_dict.items() if v is not None}
    infos = [_hparam_info(k, v, (domains or {}).get(k)) for k, v in values.items()]
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=k)) for k in metric_dict]
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, value in values.items():
        setattr(start.hparams[name], _FIELDS.get(type(value), "number_value"), value)
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time.time())
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics)
    return (
        _hparams_message(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
        _hparams_message(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _hparams_message(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )


def _hparams_message(tag: str, **content: Any) -> Any:
    data = plugin_data_pb2.HParamsPluginData(**content)
    metadata = hparams_metadata.create_summary_metadata(data)
    value = Summary.Value(tag=tag, metadata=metadata, tensor=hparams_metadata.NULL_TENSOR)
    return Summary(value=[value])


def custom_scalars(layout: Any) -> Any:
    """Which tags share a chart."""
    tensor = TensorProto(
        dtype=_DT_STRING, string_val=[layout.SerializeToString()], tensor_shape=TensorShapeProto()
    )
    metadata = custom_scalar_metadata.create_summary_metadata()
    tag = custom_scalar_metadata.CONFIG_SUMMARY_TAG
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _hparam(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, lu.Tensor):
        return number(value)
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


def _hparam_info(name: str, value: Any, domain: Any) -> Any:
    kinds = {bool: api_pb2.DATA_TYPE_BOOL, str: api_pb2.DATA_TYPE_STRING}
    info = api_pb2.HParamInfo(name=name, type=kinds.get(type(value), api_pb2.DATA_TYPE_FLOAT64))
    for item in domain or ():
        info.domain_discrete.values.add(**{_FIELDS.get(type(item), "number_value"): item})
    return info


_FIELDS = {bool: "bool_value", str: "string_value"}
