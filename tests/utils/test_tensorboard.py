"""What `SummaryWriter` writes, TensorBoard's own reader reads."""

from __future__ import annotations

import io
import struct
import sys
import wave
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne

pytest.importorskip(
    "tensorboard", reason="the tensorboard package (an extra) writes and reads the event files"
)

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata as hparams_metadata

from lucerne.utils.tensorboard import SummaryWriter, images, summary


def read(folder: Any) -> Any:
    kinds = ("scalars", "images", "tensors", "histograms", "audio")
    reader = EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0))
    return reader.Reload()


def pixels(file: bytes) -> Any:
    """The pixels of a PNG without filters."""
    width, height, _, kind = struct.unpack(">IIBB", file[16:26])
    channels = {0: 1, 2: 3, 6: 4}[kind]
    start = file.index(b"IDAT") + 4
    size = struct.unpack(">I", file[start - 8 : start - 4])[0]
    rows = np.frombuffer(zlib.decompress(file[start : start + size]), np.uint8)
    return rows.reshape(height, -1)[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("value", [0.5, 2, np.float32(0.5), lucerne.tensor([0.25])], ids=repr)
def test_scalars(tmp_path: Path, value: Any) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss/train", value, step, walltime=100.0 + step)
    found = read(tmp_path).Scalars("loss/train")
    assert [(e.wall_time, e.step) for e in found] == [(100, 0), (101, 1), (102, 2)]
    assert [e.value for e in found] == [float(value)] * 3


def test_new_style_scalars(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 0.1, 1, new_style=True)
        writer.add_scalar("b", 0.1, 1, new_style=True, double_precision=True)
    reader = read(tmp_path)
    assert reader.Tensors("a")[0].tensor_proto.float_val[0] == np.float32(0.1)
    assert reader.Tensors("b")[0].tensor_proto.double_val[0] == 0.1


def test_several_curves_are_several_runs(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("acc", {"train": 0.9, "test": lucerne.tensor(0.5)}, 7)
    for name, value in (("train", 0.9), ("test", 0.5)):
        (event,) = read(tmp_path / f"acc_{name}").Scalars("acc")
        assert (event.step, event.value) == (7, np.float32(value))


@pytest.mark.parametrize("bins", ["tensorflow", "auto", [-3.0, 0.0, 1.0, 3.0]], ids=str)
def test_histograms(tmp_path: Path, bins: Any) -> None:
    values = np.array([-2.0, -1.0, 0.5, 0.5, 2.5])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("w", lucerne.from_numpy(values), 3, bins=bins)
    (event,) = read(tmp_path).Histograms("w")
    found = event.histogram_value
    assert (found.min, found.max, found.num) == (-2.0, 2.5, 5.0)
    assert found.sum == pytest.approx(values.sum())
    assert found.sum_squares == pytest.approx((values**2).sum())
    assert sum(found.bucket) == 5
    assert len(found.bucket) == len(found.bucket_limit)
    inside = 0.0
    for limit, count in zip(found.bucket_limit, found.bucket, strict=True):
        inside += count  # all values up to the limit, give or take those on an edge
        assert (values < limit).sum() <= inside <= (values <= limit).sum() + (limit in values)


def test_histograms_with_fewer_bins(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("w", lucerne.arange(100.0), max_bins=10)
        writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5, 1.0], [1, 1])
        with pytest.raises(ValueError, match="len"):
            writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5], [1, 1])
        with pytest.raises(ValueError, match="no element"):
            writer.add_histogram("w", lucerne.ones(0))
    reader = read(tmp_path)
    assert len(reader.Histograms("w")[0].histogram_value.bucket) <= 11
    assert list(reader.Histograms("raw")[0].histogram_value.bucket) == [1, 1]


IMAGES = [
    ((3, 4, 5), "CHW", (4, 5, 3)),
    ((4, 5, 3), "HWC", (4, 5, 3)),
    ((4, 5), "HW", (4, 5, 3)),
    ((1, 4, 5), "CHW", (4, 5, 3)),
    ((4, 4, 5), "CHW", (4, 5, 4)),
    ((10, 3, 4, 5), "NCHW", (8, 40, 3)),
    ((3, 4, 5, 3), "NHWC", (4, 15, 3)),
    ((2, 4, 5), "NHW", (4, 10, 3)),
]


@pytest.mark.parametrize(("shape", "formats", "expected"), IMAGES)
def test_images(tmp_path: Path, shape: Any, formats: str, expected: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_images("bytes", lucerne.from_numpy(image), dataformats=formats)
        writer.add_images("floats", image / 255, dataformats=formats)
    reader = read(tmp_path)
    (event,) = reader.Images("bytes")
    found = pixels(event.encoded_image_string)
    assert (event.height, event.width) == expected[:2]
    assert found.shape == expected
    if formats == "CHW" and shape[0] > 1:
        np.testing.assert_array_equal(found, image.transpose(1, 2, 0))
    as_floats = pixels(reader.Images("floats")[0].encoded_image_string)
    assert np.abs(as_floats.astype(int) - found).max() <= 1


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="can't be CHW"):
            writer.add_image("x", lucerne.ones(4, 5))
        with pytest.raises(ValueError, match="must name the dimensions"):
            writer.add_image("x", lucerne.ones(4, 5), dataformats="HX")


class Figure:
    """As much of a matplotlib figure as is needed."""

    cleared = False

    def savefig(self, file: Any, format: str) -> None:
        assert format == "png"
        file.write(images.png(np.zeros((6, 7, 4), np.uint8)))

    def clear(self) -> None:
        self.cleared = True


def test_figures(tmp_path: Path) -> None:
    shown, kept = Figure(), Figure()
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("f", [shown], 2)
        writer.add_figure("f", kept, 3, close=False)
    events = read(tmp_path).Images("f")
    assert [(e.step, e.height, e.width) for e in events] == [(2, 6, 7), (3, 6, 7)]
    assert shown.cleared
    assert not kept.cleared


def test_texts_and_tensors(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "ein **Wort**: ä", 1)
        writer.add_tensor("weights", lucerne.ones(2))
    reader = read(tmp_path)
    (event,) = reader.Tensors("note/text_summary")
    assert event.tensor_proto.string_val[0].decode() == "ein **Wort**: ä"
    shown = reader.Tensors("weights/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "tensor([1., 1.])" in shown


def test_sounds(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_audio("beep", lucerne.tensor([[0.0, 0.5, -2.0]]), sample_rate=8000)
    (event,) = read(tmp_path).Audio("beep")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as file:
        samples = np.frombuffer(file.readframes(9), "<i2")
        assert file.getframerate() == 8000
    np.testing.assert_array_equal(samples, [0, 16383, -32767])


def test_hparams(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(
            {"lr": 0.1, "name": "x", "deep": True, "width": lucerne.tensor(3)},
            {"accuracy": 0.75},
            {"name": ["x", "y"]},
            run_name="one",
        )
        with pytest.raises(TypeError, match="hparam_dict should be a dictionary"):
            writer.add_hparams([], {})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="metric_dict should be a dictionary"):
            writer.add_hparams({}, [])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="should be one of"):
            writer.add_hparams({"a": object()}, {})
    reader = read(tmp_path / "one")
    assert reader.Scalars("accuracy")[0].value == 0.75
    start = reader.summary_metadata[hparams_metadata.SESSION_START_INFO_TAG]
    info = hparams_metadata.parse_session_start_info_plugin_data(start.plugin_data.content)
    assert info.hparams["lr"].number_value == 0.1
    assert info.hparams["name"].string_value == "x"
    assert info.hparams["deep"].bool_value is True
    assert info.hparams["width"].number_value == 3
    whole = reader.summary_metadata[hparams_metadata.EXPERIMENT_TAG]
    experiment = hparams_metadata.parse_experiment_plugin_data(whole.plugin_data.content)
    assert [m.name.tag for m in experiment.metric_infos] == ["accuracy"]
    domains = {h.name: [v.string_value for v in h.domain_discrete.values]
               for h in experiment.hparam_infos}  # fmt: skip
    assert domains == {"lr": [], "name": ["x", "y"], "deep": [], "width": []}


def test_precision_recall(tmp_path: Path) -> None:
    labels, scores = [0, 1, 1, 0], [0.1, 0.9, 0.4, 0.6]
    with SummaryWriter(tmp_path) as writer:
        writer.add_pr_curve("pr", lucerne.tensor(labels), lucerne.tensor(scores), num_thresholds=3)
        half = [1.0, 2.0]
        writer.add_pr_curve_raw("raw", half, half, half, half, half, half, num_thresholds=2)
    reader = read(tmp_path)
    rows = np.reshape(reader.Tensors("pr")[0].tensor_proto.float_val, (6, 3))
    # at thresholds 0, 0.5 and 1
    np.testing.assert_array_equal(rows[:4], [[2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2]])
    np.testing.assert_allclose(rows[4:], [[0.5, 0.5, 0], [1, 0.5, 0]])
    assert len(reader.Tensors("raw")[0].tensor_proto.float_val) == 12


def test_charts(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_custom_scalars({"a": {"b": ["Multiline", ["x", "y"]]}})
        writer.add_custom_scalars_multilinechart(["x"])
        writer.add_custom_scalars_marginchart(["x", "low", "high"])
        with pytest.raises(ValueError, match="three tags"):
            writer.add_custom_scalars_marginchart(["x"])
        with pytest.raises(ValueError, match="kind of a chart"):
            writer.add_custom_scalars({"a": {"b": ["Pie", ["x"]]}})
    assert len(read(tmp_path).Tensors("custom_scalars__config__")) == 3


def test_embeddings(tmp_path: Path) -> None:
    points = lucerne.arange(6.0).reshape(3, 2)
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(points, ["a", "b\n", "c"], global_step=4, tag="words")
        writer.add_embedding(points, [["a", 1], ["b", 2], ["c", 3]], metadata_header=["x", "n"])
        with pytest.raises(ValueError, match="labels"):
            writer.add_embedding(points, ["a"])
        with pytest.raises(ValueError, match="2D"):
            writer.add_embedding(lucerne.ones(3))
    folder = tmp_path / "00004" / "words"
    np.testing.assert_array_equal(np.loadtxt(folder / "tensors.tsv"), points.numpy())
    assert (folder / "metadata.tsv").read_text() == "a\nb\\n\nc\n"
    table = (tmp_path / "00000" / "default" / "metadata.tsv").read_text()
    assert table == "x\tn\na\t1\nb\t2\nc\t3\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "00004/words/tensors.tsv"' in config
    assert config.count("embeddings {") == 2


REFUSED: list[Callable[[Any], Any]] = [
    lambda w: w.add_graph(None),
    lambda w: w.add_onnx_graph("x"),
    lambda w: w.add_video("x", None),
    lambda w: w.add_image_with_boxes("x", None, None),
    lambda w: w.add_mesh("x", None),
    lambda w: w.add_embedding(lucerne.ones(2, 2), label_img=lucerne.ones(2, 3, 4, 4)),
]


@pytest.mark.parametrize("call", REFUSED, ids=range(len(REFUSED)))
def test_refusals_say_what_to_do(tmp_path: Path, call: Callable[[Any], Any]) -> None:
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotImplementedError, match="Instead, "):
        call(writer)


def test_tags_and_numbers_are_checked(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.warns(UserWarning, match="is written as 'a_b'"):
            writer.add_scalar("a:b", 1)
        with pytest.raises(ValueError, match="None"):
            writer.add_scalar(None, 1)
        with pytest.raises(ValueError, match="0D"):
            writer.add_scalar("x", lucerne.ones(2))
    assert summary.array(lucerne.ones(1, dtype=lucerne.bfloat16)).dtype == np.float32


def test_open_close_and_purge(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path, filename_suffix=".mine")
    assert writer.get_logdir() == str(tmp_path)
    writer.add_scalar("x", 1, 1)
    writer.add_scalar("x", 2, 2)
    writer.flush()
    assert len(read(tmp_path).Scalars("x")) == 2
    writer.close()
    writer.close()
    assert [p.name.endswith(".mine") for p in tmp_path.iterdir()] == [True]
    with SummaryWriter(tmp_path, purge_step=2, filename_suffix=".zzz") as again:
        again.add_scalar("x", 5, 2)
    assert [(e.step, e.value) for e in read(tmp_path).Scalars("x")] == [(1, 1.0), (2, 5.0)]


def test_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SummaryWriter(comment="_lr1").close()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_lr1")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("lucerne.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install lucerne\[tensorboard\]"):
        __import__("lucerne.utils.tensorboard")
