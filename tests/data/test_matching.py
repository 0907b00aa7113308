"""`load_matching` into real models: what it loads, what it leaves, and what it refuses."""

import subprocess
import sys

import pytest

import torchmedic

torch = pytest.importorskip("torch")
nn = torch.nn


def net(classes=10):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, classes))


def copied(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(model, before):
    return all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_importing_torchmedic_imports_no_torch():
    code = "import torchmedic, sys; torchmedic.load_matching; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("entry", [None, "state_dict", "model"])
def test_other_head_stays_as_it_was(tmp_path, prefix, entry):
    saved, model = net(), net(4)
    state = {prefix + k: v for k, v in saved.state_dict().items()}
    torch.save({entry: state, "epoch": 1} if entry else state, tmp_path / "a.pt")
    before = copied(model)
    report = torchmedic.load_matching(model, tmp_path / "a.pt")
    assert torch.equal(model[0].weight, saved[0].weight)
    assert torch.equal(model[3].weight, before["3.weight"])
    assert report.shapes == ("3.weight", "3.bias") and report.missing == report.shapes
    assert "other head: 10 outputs in the checkpoint, 4 in the model" in str(report)
    assert bool(report.prefix) == bool(prefix)


def test_wrapped_and_compiled_models():
    saved = net()
    for wrap in (nn.DataParallel, torch.compile):
        model = wrap(net())
        report = torchmedic.load_matching(model, saved.state_dict())
        assert not report.missing and report.share == 1
        inner = getattr(model, "module", None) or model._orig_mod
        assert same(inner, saved.state_dict())


def test_types_devices_identity_and_gradients_stay():
    model = net().half()
    weight = model[0].weight
    torchmedic.load_matching(model, net().state_dict())
    assert model[0].weight is weight and weight.dtype == torch.float16 and weight.requires_grad
    assert weight.grad_fn is None


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight

    saved, model = Tied(), Tied()
    state = saved.state_dict()
    del state["out.weight"]
    report = torchmedic.load_matching(model, state)
    assert model.out.weight is model.embed.weight
    assert torch.equal(model.out.weight, saved.embed.weight)
    assert not report.missing and report.share == 1


@pytest.mark.parametrize("state", [
    {}, {"epoch": 3}, {"other.weight": torch.ones(7, 5)}, {"1.num_batches_tracked": torch.tensor(3)}])
def test_nothing_that_fits(state):
    model = net()
    before = copied(model)
    with pytest.raises(torchmedic.NothingLoaded):
        torchmedic.load_matching(model, state)
    assert same(model, before)


def test_a_minimum():
    model, saved = net(4), net()
    before = copied(model)
    with pytest.raises(torchmedic.NothingLoaded, match="6 of 8 tensors"):
        torchmedic.load_matching(model, saved.state_dict(), min_matched=0.9)
    assert same(model, before)
    with pytest.raises(ValueError):
        torchmedic.load_matching(model, saved.state_dict(), min_matched=2)


def test_given_prefixes():
    saved, model = net(), net()
    state = {"a." + k: v for k, v in saved.state_dict().items()}
    with pytest.raises(torchmedic.NothingLoaded):
        torchmedic.load_matching(model, state, prefixes=["b."])
    assert not torchmedic.load_matching(model, state, prefixes=["a."]).missing


def test_an_error_on_the_way_changes_nothing():
    model = net()
    before = copied(model)
    state = dict(net().state_dict())
    state["3.weight"] = torch.sparse_csr_tensor(
        torch.arange(11), torch.zeros(10, dtype=torch.long), torch.ones(10), (10, 16))
    try:
        torchmedic.load_matching(model, state)
    except Exception:
        assert same(model, before)
    state["3.weight"] = torch.ones(10, 16, device="meta")
    model = net()
    before = copied(model)
    with pytest.raises(ValueError, match="meta"):
        torchmedic.load_matching(model, state)
    assert same(model, before)


def test_code_in_a_file_is_not_run(tmp_path):
    import os

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'marker'}",)

    torch.save({"w": torch.ones(2), "e": Evil()}, tmp_path / "a.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        torchmedic.load_matching(net(), tmp_path / "a.pt")
    assert not (tmp_path / "marker").exists()


def test_folders_shards_and_safetensors(tmp_path):
    import json
    import struct

    def write(name, state):
        header, data = {}, b""
        for key, value in state.items():
            raw = bytes(value.contiguous().flatten().view(torch.uint8).tolist())
            kind = {torch.float32: "F32", torch.int64: "I64"}[value.dtype]
            header[key] = {"dtype": kind, "shape": list(value.shape),
                           "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        (tmp_path / name).write_bytes(struct.pack("<Q", len(text)) + text + data)

    saved = net()
    state = saved.state_dict()
    write("all.bin", state)  # the name does not matter
    model = net()
    assert torchmedic.load_matching(model, tmp_path / "all.bin").share == 1
    assert same(model, copied(saved))
    halves = list(state.items())[:3], list(state.items())[3:]
    write("a.safetensors", dict(halves[0]))
    torch.save(dict(halves[1]), tmp_path / "b.bin")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {
        key: name for half, name in zip(halves, ("a.safetensors", "b.bin"), strict=True)
        for key, _ in half}}))
    model = net()
    assert torchmedic.load_matching(model, tmp_path).share == 1
    assert same(model, copied(saved))


def test_one_layer_compiled_on_either_side(tmp_path):
    saved, model = net(), net()
    saved[0] = torch.compile(saved[0])
    report = torchmedic.load_matching(model, saved.state_dict())
    assert report.share == 1 and torch.equal(model[0].weight, saved[0]._orig_mod.weight)
    assert "_orig_mod" in str(report)
    torch.save({"module." + k: v for k, v in model.state_dict().items()}, tmp_path / "a.pt")
    other = net()
    other[0] = torch.compile(other[0])
    assert torchmedic.load_matching(other, tmp_path / "a.pt").share == 1
    assert torch.equal(other[0]._orig_mod.weight, model[0].weight)


def test_a_layer_of_one_size_by_chance_is_not_loaded():
    model = net()
    state = {"linear.weight": torch.ones(10, 16), "other.weight": torch.ones(7, 7), "more.bias": torch.ones(2)}
    before = copied(model)
    with pytest.raises(torchmedic.NothingLoaded):
        torchmedic.load_matching(model, state)
    assert same(model, before)
