"""What a checkpoint's own bytes tell: kinds of tensors, files cut or made to harm, foreign files."""

import importlib.util
import io
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest

from torchmedic.data import checkpoints
from torchmedic.data.globals import harmful, refused
from torchmedic.data.pickles import Global
from torchmedic.main import main
from torchmedic.output import UserError

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def kinds(path):
    return [defect.kind for defect in checkpoints.read(path).defects]


def names(path, capsys):
    """Exit code, and the rules and texts of the findings."""
    code = main(["weights", str(path), "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    told = " ".join(json.dumps(finding, ensure_ascii=False) for finding in found)
    return code, [finding["rule"] for finding in found], told


@pytest.mark.parametrize("make, kind, shape, dtype", [
    (lambda: torch.eye(3).to_sparse(), "sparse", (3, 3), "float32"),
    (lambda: torch.eye(3, dtype=torch.float64).to_sparse_csr(), "sparse", (3, 3), "float64"),
    (lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8), "quantized", (3, 3), "qint8"),
    (lambda: torch.empty(4, 2, device="meta"), "meta", (4, 2), "float32"),
    (lambda: torch.zeros(2, 3, dtype=torch.float8_e4m3fn), "", (2, 3), "float8_e4m3fn"),
    (lambda: torch.zeros(2, dtype=torch.uint16), "", (2,), "uint16"),
    (lambda: torch.zeros(2, dtype=torch.bfloat16), "", (2,), "bfloat16"),
    (lambda: torch.zeros(2, dtype=torch.complex64), "", (2,), "complex64"),
    (lambda: torch.nn.Parameter(torch.zeros(2, 5)), "", (2, 5), "float32"),
    (lambda: np.zeros((3, 4), dtype=np.float64), "NumPy", (3, 4), "float64"),
])
def test_kinds_of_tensors(tmp_path, make, kind, shape, dtype):
    for new in (True, False):
        try:
            torch.save({"w": make(), "v": torch.ones(2)}, tmp_path / "a.pt",
                       _use_new_zipfile_serialization=new)
        except (RuntimeError, NotImplementedError):
            assert not new  # the old form knows fewer types
            continue
        found = checkpoints.read(tmp_path / "a.pt").weights["w"]
        assert (found.kind, found.shape, found.dtype) == (kind, shape, dtype)


def test_a_distributed_tensor(tmp_path):
    program = f"""
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
from torch.distributed.tensor import distribute_tensor, Shard, init_device_mesh
mesh = init_device_mesh("cpu", (1,))
torch.save({{"w": distribute_tensor(torch.zeros(4, 2), mesh, [Shard(0)])}}, {str(tmp_path / "a.pt")!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no process group here: {done.stderr[-200:]}")
    read = checkpoints.read(tmp_path / "a.pt")
    assert (read.weights["w"].kind, read.weights["w"].shape) == ("DTensor", (4, 2))
    assert not read.refused and not read.defects


def test_the_list_of_names_is_torchs():
    weights_only = pytest.importorskip("torch._weights_only_unpickler")
    allowed = [Global(*name.rpartition(".")[::2]) for name in weights_only._get_allowed_globals()]
    assert refused(allowed) == ()
    assert not [str(name) for name in allowed if harmful(name)]


@pytest.mark.parametrize("value, name", [
    (np.float64(1.5), "scalar"), (Namespace(lr=1), "argparse.Namespace"),
    (Path("x"), "pathlib"), (lambda: 0, None),
])
def test_what_weights_only_refuses(tmp_path, capsys, value, name):
    if name is None:
        torch.save({"w": torch.ones(2), "epoch": 3, "lr": 0.1, "name": "x"}, tmp_path / "a.pt")
        assert names(tmp_path / "a.pt", capsys)[:2] == (0, [])
        return
    torch.save({"w": torch.ones(2), "more": value}, tmp_path / "a.pt")
    code, rules, told = names(tmp_path / "a.pt", capsys)
    assert (code, rules) == (1, ["weights-only-refused"]) and name in told
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "a.pt", weights_only=True)


def saved(new):
    stream = io.BytesIO()
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30))
    torch.save({"model": net.state_dict(), "epoch": 1}, stream, _use_new_zipfile_serialization=new)
    return stream.getvalue()


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_a_hundred_cuts(tmp_path, new, capsys):
    whole, file = saved(new), tmp_path / "a.pt"
    chance = random.Random(0)
    for end in sorted(chance.sample(range(64, len(whole)), 100)):
        file.write_bytes(whole[:end])
        read = checkpoints.read(file)
        assert [d.kind for d in read.defects] == ["cut"], end
        if not new and "bytes are missing" in read.defects[0].detail:
            assert read.defects[0].detail == f"{len(whole) - end:,} of {len(whole):,} bytes are missing"
            assert read.weights["0.weight"].shape == (30, 40)
        assert main(["weights", str(file)]) == 1
        capsys.readouterr()


def test_bytes_turned_over_raise_nothing(tmp_path):
    """Whatever a byte becomes: an answer, no exception."""
    file, chance, arrays = tmp_path / "a.pt", random.Random(1), io.BytesIO()
    np.savez_compressed(arrays, w=np.arange(300), v=np.zeros((2, 3)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a/data.pkl", pickle.dumps({str(n): n for n in range(200)}, protocol=2))
        out.writestr("a/version", "3")
    for whole in (saved(True), saved(False), arrays.getvalue(), packed.getvalue()):
        for _ in range(300):
            broken = bytearray(whole)
            for _ in range(chance.choice((1, 2, 8))):
                broken[chance.randrange(min(len(whole), 1500))] = chance.randrange(256)
            file.write_bytes(broken)
            checkpoints.read(file)


def test_a_zip_tells_at_least_how_much_is_missing(tmp_path):
    torch.save({"w": torch.zeros(1_000_000)}, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(whole[:1_000_000])
    read = checkpoints.read(tmp_path / "a.pt")
    told = int(read.defects[0].detail.rpartition("at least ")[2].split()[0].replace(",", ""))
    assert 0 <= len(whole) - 1_000_000 - told < 2000
    assert read.weights["w"].shape == (1_000_000,)


class Evil:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle", "dcp", "jit name", "inside a model"])
def test_harmful_files_are_told_with_what_they_would_do(tmp_path, capsys, form):
    marker = tmp_path / "marker"
    evil = Evil(os.system, f"touch {marker}")
    file = tmp_path / "a.pt"
    if form == "dcp":
        file = tmp_path / "dcp"
        file.mkdir()
        (file / ".metadata").write_bytes(pickle.dumps(evil))
    elif form == "pickle":
        file.write_bytes(pickle.dumps([evil]))
    elif form == "inside a model":
        net = torch.nn.Linear(2, 2)
        net.more = evil
        torch.save(net, file)
    else:
        torch.save({"w": torch.ones(1), "x": evil}, file, _use_new_zipfile_serialization=form != "legacy")
        if form == "jit name":  # looks like TorchScript, whose classes are not asked about
            with zipfile.ZipFile(file, "a") as archive:
                archive.writestr(f"{file.stem}/code/x.py", "")
    code, rules, told = names(file, capsys)
    assert code == 1 and rules[0] == "checkpoint-corrupt"
    assert "wants to run code" in told and f"touch {marker}" in told
    assert main(["weights", "--values", str(file)]) == 1
    capsys.readouterr()
    assert not marker.exists()


@pytest.mark.parametrize("operations", [b"\x8f", b"]", b"(", b")R", b"r\1\0\0\0"])
def test_bombs_stay_small(tmp_path, operations):
    """Four million operations of one kind: a few hundred megabytes at most, in a process apart."""
    (tmp_path / "a.pt").write_bytes(b"\x80\x02(ca\nB\n" + operations * 4_000_000)
    program = """
import re, sys
from pathlib import Path
from torchmedic.data import checkpoints
defect, = checkpoints.read(Path(sys.argv[1])).defects
# Not ru_maxrss: exec hands on the peak of the process that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(defect.kind, int(peak) // 1024)"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "a.pt"], capture_output=True,
                          text=True, check=True)
    kind, megabytes = done.stdout.split()
    assert kind == "too-large" and int(megabytes) < 400


@pytest.mark.parametrize("name, harm", [
    ("os system", True), ("posix system", True), ("builtins eval", True), ("nt system", True),
    ("builtins exec", True), ("subprocess Popen", True), ("builtins __import__", True),
    ("torch.hub load", True), ("torch.serialization os.system", True), ("runpy run_path", True),
    ("operator methodcaller", True), ("functools reduce", True), ("shutil rmtree", True),
    ("builtins getattr", False), ("builtins set", False), ("collections OrderedDict", False),
    ("operator itemgetter", False), ("functools partial", False), ("models.yolo Model", False),
    ("numpy.core.multiarray scalar", False), ("torch._utils _rebuild_tensor_v2", False),
    ("pathlib PosixPath", False), ("omegaconf.dictconfig DictConfig", False),
])
def test_which_names_do_harm(name, harm):
    assert harmful(Global(*name.split())) is harm


def test_modules_that_hold_each_other_end(tmp_path):
    """Sixty levels of two: 2 to the power of 60 paths."""
    net = torch.nn.Module()
    for _ in range(40):
        outer = torch.nn.Module()
        outer.a, outer.b = net, net
        net = outer
    torch.save(net, tmp_path / "a.pt")
    start = time.process_time()
    assert kinds(tmp_path / "a.pt") == ["whole-model"]
    nested = {"w": torch.ones(1)}
    for _ in range(40):
        nested = {"a": nested, "b": nested, "c": nested}
    torch.save(nested, tmp_path / "b.pt")
    checkpoints.read(tmp_path / "b.pt")
    assert time.process_time() - start < 20


def tar(file):
    with tarfile.open(file, "w") as archive:
        archive.add(__file__, "weights/a.py")


def archive(**members):
    def write(file):
        with zipfile.ZipFile(file, "w") as out:
            for name, text in members.items():
                out.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return write


def content(data):
    return lambda file: file.write_bytes(data)


@pytest.mark.parametrize("write, says", [
    (tar, "a tar archive"), (content(b"\x89HDF\r\n\x1a\n" + bytes(50)), "HDF5"),
    (content(b"GGUF\3\0\0\0"), "llama.cpp"), (content(b"\x1f\x8b\x08\0"), "gzip"),
    (content(b"\x08\x08\x12\x07pytorch\x1a\x051.9"), "an ONNX model"),
    (content(b"\x1c\0\0\0TFL3" + b"\x01" * 40), "TensorFlow Lite"),
    (content(b"Salted__" + os.urandom(64)), "encrypted"),
    (content(b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 102530333\n"),
     "of a file of 102,530,333 bytes"),
    (content(b"<html><head><title>Sign in to continue</title></head>"), "Sign in to continue"),
    (content("文件不存在\n".encode()), "文件不存在"),
    (content(bytes(8192)), "room that was reserved"),
    (content(bytes(range(128, 256))), "no format of checkpoints"),
    (archive(MAR_INF__x="", **{"MAR-INF__MANIFEST_dot_json": "{}", "net_dot_pt": "x"}), "`net.pt`"),
    (archive(model_dot_weights_dot_h5="x"), "a Keras model"),
    (archive(a__b_dot_pth="x", readme_dot_txt=""), "`a/b.pth`"),
])
def test_foreign_files_are_named(tmp_path, capsys, write, says):
    write(tmp_path / "a.pth")
    code, rules, told = names(tmp_path / "a.pth", capsys)
    assert (code, rules) == (1, ["checkpoint-corrupt"]) and says in told


def test_a_real_onnx_model_and_torchscript_from_a_wheel(capsys):
    spec = importlib.util.find_spec("silero_vad")
    if spec is None:
        pytest.skip("silero_vad is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    assert "an ONNX model" in names(folder / "silero_vad.onnx", capsys)[2]
    script, flat = (checkpoints.read(folder / name)
                    for name in ("silero_vad.jit", "silero_vad_16k.safetensors"))
    assert script.format == "TorchScript" and not script.defects and not flat.defects
    shapes = [tensor.shape for tensor in script.weights.values()]
    assert all(tensor.shape in shapes for tensor in flat.weights.values())
    with pytest.raises(UserError, match=r"several checkpoints"):
        checkpoints.read(folder)


def test_numpy_files(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", w=np.zeros((2, 3)), b=np.zeros(3, dtype=np.float16))
    np.save(tmp_path / "b.npy", np.zeros((5, 1), dtype=np.int32))
    found = checkpoints.read(tmp_path / "a.npz").weights
    assert {k: (t.shape, t.dtype) for k, t in found.items()} == {
        "w": ((2, 3), "float64"), "b": ((3,), "float16")}
    assert [t.shape for t in checkpoints.read(tmp_path / "b.npy").weights.values()] == [(5, 1)]


def test_folders(tmp_path, capsys):
    torch.save({"w": torch.ones(3)}, tmp_path / "a.pt")
    assert set(checkpoints.read(tmp_path).weights) == {"w"}
    torch.save({"w": torch.ones(3)}, tmp_path / "b.pt")
    assert main(["weights", str(tmp_path)]) == 2
    assert "a.pt, b.pt" in capsys.readouterr().err
    with zipfile.ZipFile(tmp_path / "a.pt") as inner:
        inner.extractall(tmp_path / "x")
    assert kinds(tmp_path / "x" / "a") == ["unpacked"]
    (tmp_path / "empty").mkdir()
    assert main(["weights", str(tmp_path / "empty")]) == 2
    assert main(["weights", os.devnull]) == 2


def test_a_distributed_checkpoint_that_lacks_bytes(tmp_path):
    import torch.distributed.checkpoint as dcp

    dcp.save({"model": torch.nn.Linear(30, 40).state_dict()}, checkpoint_id=str(tmp_path))
    assert kinds(tmp_path) == []
    part, = tmp_path.glob("*.distcp")
    whole = part.read_bytes()
    part.write_bytes(whole[:-100])
    assert kinds(tmp_path) == ["cut"]
    part.unlink()
    assert kinds(tmp_path) == ["shard"]


def test_one_tensor_under_two_names_and_a_small_view(tmp_path):
    big = torch.zeros(2_000_000)
    tied = torch.zeros(4, 3)
    torch.save({"a": tied, "b": tied, "view": big[:5]}, tmp_path / "a.pt")
    notes = " ".join(checkpoints.read(tmp_path / "a.pt").notes)
    assert "one tensor under several names: `a`, `b`" in notes
    assert "`view` shows 5 of the 2,000,000 values" in notes


def test_averaged_weights_and_lists_are_told(tmp_path):
    net = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    adam.step()
    ema = {k: v * 2 for k, v in net.state_dict().items()}
    torch.save({"ema": ema, "state_dict": net.state_dict(), "optimizer_states": [adam.state_dict()],
                "epoch": 4}, tmp_path / "a.ckpt")
    read = checkpoints.read(tmp_path / "a.ckpt")
    assert read.within == ("state_dict",) and "ema" in " ".join(read.notes)
    what = {entry.name: entry.what for entry in read.entries}
    assert what["optimizer_states"] == "list of one: optimizer: 2 states (step, exp_avg, exp_avg_sq), 1 groups"


def test_check_sums_that_torch_leaves_out(tmp_path):
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this torch always writes check sums")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert kinds(tmp_path / "a.pt") == []


def test_a_plain_pickle(tmp_path, capsys):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"model": {"w": np.zeros((2, 3), np.float32)}}))
    read = checkpoints.read(tmp_path / "a.pkl")
    assert read.weights["w"].shape == (2, 3) and [d.kind for d in read.defects] == ["pickle"]


def test_a_large_file_costs_nothing(tmp_path):
    """Four gigabytes that take no room on the disk: only the headers may be read."""
    header = json.dumps({f"layer.{n}.weight": {
        "dtype": "F32", "shape": [1 << 18], "data_offsets": [n << 20, (n + 1) << 20]}
        for n in range(4096)}).encode()
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (4096 << 20))
    with (tmp_path / "b.pt").open("wb") as file:
        torch.save({"w": torch.zeros(4), "x": torch.zeros(7)}, file,
                   _use_new_zipfile_serialization=False)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    read = checkpoints.read(tmp_path / "a.safetensors")
    assert len(read.weights) == 4096 and not read.defects
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_one_large_dictionary_in_many_places(tmp_path):
    large = dict.fromkeys(map(str, range(100_000)), 1)
    torch.save({f"a{n}": [large, {"w": large}] for n in range(3000)} | {
        f"b{n}": large for n in range(3000)}, tmp_path / "a.pt")
    start = time.process_time()
    checkpoints.read(tmp_path / "a.pt")
    assert time.process_time() - start < 20
