"""`hub`: models of a folder, and weights from a server on this machine."""

from __future__ import annotations

import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne
from lucerne import hub

HUBCONF = '''
"""Models."""
import lucerne as torch
from beside import factor

dependencies = ["lucerne"]


def line(n, bias=True):
    """A line."""
    return torch.nn.Linear(n * factor, 1, bias=bias)


def _hidden():
    return None
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "beside.py").write_text("factor = 2\n")
    return tmp_path


def test_a_folder(folder: Path) -> None:
    for made in (
        hub.load(folder, "line", 3, source="local", bias=False),
        hub.load(folder.as_uri(), "line", 3, bias=False),
    ):
        assert made.weight.shape == (1, 6)
        assert made.bias is None
    assert hub.list(folder.as_uri()) == ["line"]
    assert hub.help(folder.as_uri(), "line") == "A line."


WRONG = [
    ("absent", {"source": "local"}, RuntimeError, "Cannot find callable absent"),
    (3, {"source": "local"}, ValueError, "string of function name"),
    ("line", {"source": "disk"}, ValueError, 'Unknown source: "disk"'),
    ("line", {}, NotImplementedError, "Clone the repository"),
]


@pytest.mark.parametrize(("model", "options", "error", "says"), WRONG)
def test_what_is_wrong(
    folder: Path, model: Any, options: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        hub.load(folder, model, **options)


def test_a_folder_without_its_file_or_its_libraries(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no hubconf\.py"):
        hub.load(tmp_path, "line", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_library']\ndef f(): ...\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_library"):
        hub.load(tmp_path, "f", source="local")


class _Server(http.server.BaseHTTPRequestHandler):
    files: dict[str, tuple[bytes, int]] = {}  # noqa: RUF012  (content, length that is announced)
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content, length = self.files[self.path.partition("?")[0]]
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """The terminal is left alone."""


def _weights() -> bytes:
    file = io.BytesIO()
    lucerne.save({"w": lucerne.arange(3.0)}, file)
    return file.getvalue()


def _zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.pt", content)
    return file.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    data = _weights()
    digits = hashlib.sha256(data).hexdigest()[:8]
    _Server.asked = []
    _Server.files = {
        "/w.pt": (data, len(data)),
        f"/w-{digits}.pt": (data, len(data)),
        "/w-00000000.pt": (data, len(data)),
        "/short.pt": (data[:-5], len(data)),
        "/zipped.pt": (_zipped(data), len(_zipped(data))),
        "/bomb.pt": (_zipped(bytes(10_000_000)), len(_zipped(bytes(10_000_000)))),
    }
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_weights_are_fetched_once(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        found = hub.load_state_dict_from_url(f"{server}/w.pt?a=1", tmp_path / "kept")
        assert found["w"].tolist() == [0, 1, 2]
    assert _Server.asked == ["/w.pt?a=1"]
    shown = capsys.readouterr().err
    assert "Downloading: " in shown
    assert "100%" in shown
    hub.load_state_dict_from_url(f"{server}/w.pt", tmp_path, file_name="b.pt", progress=False)
    assert (tmp_path / "b.pt").exists()
    assert "%" not in capsys.readouterr().err


def test_where_weights_go(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    lucerne.utils.model_zoo.load_url(f"{server}/w.pt", progress=False)
    assert (tmp_path / "hub" / "checkpoints" / "w.pt").exists()


def test_digests(server: str, tmp_path: Path) -> None:
    [good] = [path for path in _Server.files if path.startswith("/w-") and "00000000" not in path]
    hub.load_state_dict_from_url(server + good, tmp_path, check_hash=True)
    hub.load_state_dict_from_url(f"{server}/w-00000000.pt", tmp_path / "unasked")
    with pytest.raises(RuntimeError, match='expected "00000000", got'):
        hub.load_state_dict_from_url(f"{server}/w-00000000.pt", tmp_path, check_hash=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["unasked", good[1:]]


def test_half_a_file_is_none(server: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="were announced"):
        hub.download_url_to_file(f"{server}/short.pt", tmp_path / "short.pt", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_zipped_file(server: str, tmp_path: Path) -> None:
    found = hub.load_state_dict_from_url(f"{server}/zipped.pt", tmp_path, progress=False)
    assert found["w"].tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="unpacked it would be 10000000 bytes"):
        hub.load_state_dict_from_url(f"{server}/bomb.pt", tmp_path, progress=False)


def test_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "there.pt").write_bytes(_weights())
    address = (tmp_path / "there.pt").as_uri()
    found = hub.load_state_dict_from_url(address, tmp_path / "here", progress=False)
    assert found["w"].tolist() == [0, 1, 2]


def test_a_bar() -> None:
    shown = io.StringIO()
    line = hub.tqdm([1, 2], desc="rows", file=shown, unit="B", unit_scale=True)
    assert list(line) == [1, 2]
    assert shown.getvalue() == "\rrows: 50% (1 of 2 B)\rrows: 100% (2 of 2 B)\n"
    with hub.tqdm(file=shown, unit="B", unit_scale=True, unit_divisor=1024) as line:
        line.update(3 * 1024**2)
    assert shown.getvalue().endswith("\r3M B\n")
    quiet = io.StringIO()
    with hub.tqdm(total=2, disable=True, file=quiet) as line:
        line.update(2)
    assert quiet.getvalue() == ""
    assert line.n == 2
