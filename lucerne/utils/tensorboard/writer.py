"""`SummaryWriter`: log scalars, histograms, images and texts while a model trains."""

from __future__ import annotations

import io
import json
import re
import socket
import struct
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import RecordWriter as RecordWriter

from lucerne._src.base.process import notices
from lucerne.utils.tensorboard import summary

__all__ = ["FileWriter", "SummaryWriter"]


def _clean(tag: Any) -> str:
    """A tag without characters TensorBoard can't show."""
    if tag is None:
        raise ValueError("a tag is a name to show values under, got None")
    cleaned = re.sub(r"[^-/\w\. ]", "_", str(tag)).lstrip("/")
    if cleaned != str(tag):
        notices.warn(f"the tag {tag!r} is written as {cleaned!r}: TensorBoard needs it so")
    return cleaned


class FileWriter:
    """One event file: messages go in with a step and a time."""

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> Any:
        """The folder of the file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Write an event, stamped."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, message: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write a summary."""
        self.add_event(event_pb2.Event(summary=message), global_step, walltime)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self.event_writer.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on writing, into a new file, after `close`."""
        self.event_writer = EventFileWriter(str(self.get_logdir()))


class SummaryWriter:
    """Writes logs for TensorBoard into a folder (`runs/<time>_<host>` unless told).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     for step in range(3):
    ...         writer.add_scalar("loss", 1 / (step + 1), step)
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = str(Path("runs") / f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._embeddings = ProjectorConfig()
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the main file, opened again if it was closed."""
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                self.file_writer.add_event(
                    event_pb2.Event(step=self.purge_step, file_version="brain.Event:2")
                )
                self.file_writer.add_event(event_pb2.Event(step=self.purge_step, session_log=start))
                self.purge_step = None
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder the files are in."""
        return self.log_dir

    def _add(self, message: Any, global_step: Any, walltime: float | None) -> None:
        self._get_file_writer().add_summary(message, global_step, walltime)

    def add_scalar(
        self,
        tag: Any,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number at a step."""
        message = summary.scalar(_clean(tag), scalar_value, new_style, double_precision)
        self._add(message, global_step, walltime)

    def add_scalars(
        self,
        main_tag: Any,
        tag_scalar_dict: dict[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Several curves in one chart; each is a run of its own, in a folder of its own."""
        stamp = time.time() if walltime is None else walltime
        main = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            folder = f"{main}/{str(main_tag).replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._options)
            message = summary.scalar(_clean(main_tag), value)
            self.all_writers[folder].add_summary(message, global_step, stamp)

    def add_tensor(
        self, tag: Any, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """The values of a small tensor, as text (TensorBoard has no other view of them)."""
        self.add_text(tag, f"```\n{tensor}\n```", global_step, walltime)

    def add_histogram(
        self,
        tag: Any,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are spread. `bins` is `"tensorflow"`, another of NumPy's names, or edges."""
        message = summary.histogram(_clean(tag), values, bins, max_bins)
        self._add(message, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: Any,
        min: Any,
        max: Any,
        num: Any,
        sum: Any,
        sum_squares: Any,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted elsewhere."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(
                "len(bucket_limits) != len(bucket_counts): give the upper edge of each bucket"
            )
        message = summary.histogram_raw(
            _clean(tag), min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(message, global_step, walltime)

    def add_image(
        self,
        tag: Any,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image: bytes from 0 to 255 or floats from 0 to 1."""
        self._add(summary.image(_clean(tag), img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: Any,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """A batch of images, on one sheet."""
        self._add(summary.image(_clean(tag), img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self,
        tag: Any,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A matplotlib figure, or a list of them one below the other in time."""
        for each in figure if isinstance(figure, list) else [figure]:
            memory = io.BytesIO()
            each.savefig(memory, format="png")
            file = memory.getvalue()
            width, height = struct.unpack(">II", file[16:24])
            message = summary.encoded_image(_clean(tag), file, height, width, 4)
            self._add(message, global_step, walltime)
            if close:
                each.clear()

    def add_audio(
        self,
        tag: Any,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A mono sound, samples between -1 and 1."""
        self._add(summary.audio(_clean(tag), snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: Any, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """A text, shown as Markdown."""
        self._add(summary.text(_clean(tag), text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Settings and what came of them, to compare runs; written as a run of its own."""
        messages = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = Path(self._get_file_writer().get_logdir()) / (run_name or str(time.time()))
        with SummaryWriter(log_dir=str(folder)) as writer:
            for message in messages:
                writer._add(message, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_pr_curve(
        self,
        tag: Any,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision against recall, of binary labels and scores between 0 and 1."""
        message = summary.pr_curve(_clean(tag), labels, predictions, num_thresholds, weights)
        self._add(message, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: Any,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A precision-recall curve that was counted elsewhere."""
        parts = (
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
            precision,
            recall,
        )
        rows = np.stack([summary.array(p).astype(np.float64) for p in parts])
        self._add(summary.pr_curve_raw(_clean(tag), rows, num_thresholds), global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, list[Any]]]) -> None:
        """Charts of several tags: `{category: {title: ["Multiline" or "Margin", [tags]]}}`."""
        categories = []
        for category, charts in layout.items():
            made = [_chart(title, *kind_and_tags) for title, kind_and_tags in charts.items()]
            categories.append(layout_pb2.Category(title=category, chart=made))
        message = summary.custom_scalars(layout_pb2.Layout(category=categories))
        self._add(message, None, None)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart with a line for each tag."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of a value with a lower and an upper bound."""
        if len(tags) != 3:
            raise ValueError(f"a margin chart has three tags (value, lower, upper), got {tags}")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Points for the projector: rows of `mat`, with a label (or several) for each."""
        if label_img is not None:
            _refuse("pictures of points (add_embedding's label_img)", "label them with metadata")
        points = summary.array(mat)
        if points.ndim != 2:
            raise ValueError(
                f"mat should be 2D, where mat.size(0) is the number of data points; "
                f"it has shape {points.shape}"
            )
        step = f"{int(global_step or 0):05d}"
        folder = Path(self.log_dir) / step / _clean(tag)
        folder.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / "tensors.tsv", points, delimiter="\t", fmt="%.9g")
        entry = self._embeddings.embeddings.add()
        entry.tensor_name = f"{tag}:{step}"
        entry.tensor_path = f"{step}/{_clean(tag)}/tensors.tsv"
        if metadata is not None:
            if len(metadata) != len(points):
                raise ValueError("#labels should equal with #data points")
            rows = [metadata_header] if metadata_header else []
            lines = [_tabs(row) for row in [*rows, *metadata]]
            (folder / "metadata.tsv").write_text("\n".join(lines) + "\n")
            entry.metadata_path = f"{step}/{_clean(tag)}/metadata.tsv"
        (Path(self.log_dir) / "projector_config.pbtxt").write_text(str(self._embeddings))

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> NoReturn:
        """Refused: Lucerne has no TorchScript graph to show."""
        _refuse("graphs", "print(model), or watch the ops of a call (docs/extend/interpreters.md)")

    def add_onnx_graph(self, prototxt: Any) -> NoReturn:
        """Refused, as `add_graph`."""
        _refuse("ONNX graphs", "open the file with netron")

    def add_video(
        self,
        tag: Any,
        vid_tensor: Any,
        global_step: Any = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> NoReturn:
        """Refused: it would need an encoder of moving pictures."""
        _refuse("videos", "write the frames with add_images")

    def add_image_with_boxes(
        self, tag: Any, img_tensor: Any, box_tensor: Any, **_: Any
    ) -> NoReturn:
        """Refused: it would need a drawing library."""
        _refuse("boxes", "draw them into the image, or use add_figure with matplotlib")

    def add_mesh(self, tag: Any, vertices: Any, **_: Any) -> NoReturn:
        """Refused."""
        _refuse("meshes", "plot them with matplotlib and add_figure")

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Flush and close all files; a later call opens a new one."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.close()


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"lucerne.utils.tensorboard does not write {what}. Instead, {instead}."
    )


def _tabs(row: Any) -> str:
    cells = row if isinstance(row, list | tuple) else [row]
    return "\t".join(json.dumps(str(c))[1:-1] for c in cells)


def _chart(title: str, kind: str, tags: list[str]) -> Any:
    """A chart of one of the two kinds, in TensorBoard's words."""
    if kind == "Margin":
        value, lower, upper = tags
        series = layout_pb2.MarginChartContent.Series(value=value, lower=lower, upper=upper)
        return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))
    if kind != "Multiline":
        raise ValueError(f'the kind of a chart is "Multiline" or "Margin", got {kind!r}')
    return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
