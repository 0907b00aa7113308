"""Checkpoints beside a model that a factory builds in another process."""

import json

import pytest

from torchmedic.main import main

torch = pytest.importorskip("torch")
FACTORIES = """
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=10, depth=3, width=16, head="fc", body="blocks"):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3)
        self.add_module(body, nn.ModuleList(
            [nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width))
             for _ in range(depth)]))
        self.add_module(head, nn.Linear(width, classes))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight


def loud():
    print("building")
    return Net()


def other():
    return nn.LSTM(7, 5)


def broken():
    raise ValueError("no such width")


def none():
    return 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "factories.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "factories", raising=False)
    import factories

    return factories


def asked(capsys, file, model, args=None):
    """Exit code, names of the findings, and the data of the answer."""
    more = ["--model-args", json.dumps(args)] if args else []
    code = main(["weights", str(file), "--model", model, "--output-format", "json", *more])
    data = json.loads(capsys.readouterr().out)
    return code, [f["rule"] for f in data["findings"]], data


def run_fix(data, model):
    """Carries out the code that the main finding's fix shows."""
    lines = data["findings"][0]["fix"]["diff"].splitlines()
    exec("\n".join(line.removeprefix("+") for line in lines), {"torch": torch, "model": model})


def test_the_same_model_is_quiet(folder, capsys):
    torch.save({"state_dict": folder.Net().state_dict()}, "a.pt")
    code, rules, data = asked(capsys, "a.pt", "factories:loud")
    assert (code, rules) == (0, [])
    assert len(data["weights"]["comparison"]["matched"]) == data["weights"]["tensors"]


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "module._orig_mod.", "net.backbone."])
def test_prefix_and_its_cure(folder, capsys, prefix):
    saved = folder.Net()
    torch.save({"model": {prefix + k: v for k, v in saved.state_dict().items()}}, "a.pt")
    code, rules, data = asked(capsys, "a.pt", "factories:Net")
    assert (code, rules) == (1, ["state-dict-prefix"])
    assert data["weights"]["comparison"]["prefix"] == {"removed": prefix, "added": ""}
    model = folder.Net()
    run_fix(data, model)
    assert torch.equal(model.fc.weight, saved.fc.weight)


def test_prefix_on_the_model(folder, capsys):
    torch.save(folder.Net().state_dict(), "a.pt")
    (__import__("pathlib").Path("wrapped.py")).write_text(
        "import factories, torch\ndef build():\n    return torch.nn.DataParallel(factories.Net())\n")
    code, rules, data = asked(capsys, "a.pt", "wrapped:build")
    assert (code, rules) == (1, ["state-dict-prefix"])
    run_fix(data, torch.nn.DataParallel(folder.Net()))


@pytest.mark.parametrize("args, reason", [
    ({"classes": 4}, "other head: 10 outputs in the checkpoint, 4 in the model"),
    ({"depth": 5}, "other depth: `blocks` has 5 layers in the model, 3 in the checkpoint"),
    ({"depth": 2}, "other depth: `blocks` has 3 layers in the checkpoint, 2 in the model"),
    ({"head": "classifier"}, "renamed: `fc.weight` has its shape and place"),
])
def test_reasons_and_their_cure(folder, capsys, args, reason):
    saved = folder.Net()
    torch.save(saved.state_dict(), "a.pt")
    code, rules, data = asked(capsys, "a.pt", "factories:Net", args)
    assert (code, rules) == (1, ["state-dict-mismatch"])
    compared = data["weights"]["comparison"]
    assert reason in {d["reason"] for kind in ("shape_differs", "missing", "unexpected")
                      for d in compared[kind]}
    model = folder.Net(**args)
    run_fix(data, model)
    assert torch.equal(model.stem.weight, saved.stem.weight)


def test_width_transposed_and_type(folder, capsys):
    torch.save(folder.Net().state_dict(), "a.pt")
    _, rules, data = asked(capsys, "a.pt", "factories:Net", {"width": 32})
    assert rules == ["state-dict-mismatch"]
    assert data["weights"]["comparison"]["shape_differs"][0]["reason"] == "other width: 16 against 32"
    state = folder.Net().half().state_dict()
    state["fc.weight"] = state["fc.weight"].T.contiguous()
    torch.save(state, "a.pt")
    _, rules, data = asked(capsys, "a.pt", "factories:Net")
    assert data["weights"]["comparison"]["shape_differs"][0]["reason"] == "transposed"
    assert data["weights"]["comparison"]["dtype_differs"]


def test_nothing_in_common(folder, capsys):
    torch.save(folder.Net().state_dict(), "a.pt")
    code, rules, _ = asked(capsys, "a.pt", "factories:other")
    assert (code, rules) == (1, ["nothing-loaded"])


def test_tied_weights_saved_once(folder, capsys):
    state = folder.Tied().state_dict()
    del state["out.weight"]
    torch.save(state, "a.pt")
    _, _, data = asked(capsys, "a.pt", "factories:Tied")
    assert data["weights"]["comparison"]["missing"][0]["reason"] == (
        "shares its memory with `embed.weight`")


@pytest.mark.parametrize("model, args, says", [
    ("factories:broken", None, "no such width"), ("factories:none", None, "not a model"),
    ("nowhere:Net", None, "nowhere"), ("factories.Net", None, "MODULE:FACTORY"),
    ("factories:Net", "{", "not JSON"), ("factories:Net", "3", "object or list"),
    ("factories:Net", '{"nope": 1}', "nope")])
def test_bad_models_are_said(folder, capsys, model, args, says):
    torch.save(folder.Net().state_dict(), "a.pt")
    more = ["--model-args", args] if args else []
    assert main(["weights", "a.pt", "--model", model, *more]) == 2
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err


def test_values(folder, capsys):
    state = folder.Net().state_dict()
    state["fc.bias"][3] = float("nan")
    torch.save(state, "a.pt")
    assert main(["weights", "a.pt"]) == 0
    assert main(["weights", "a.pt", "--values"]) == 1
    assert "`fc.bias` has 1 NaN and 0 Inf" in capsys.readouterr().out
    torch.save({"s": torch.eye(2).to_sparse(), "c": torch.eye(2).to_sparse_csr(),
                "q": torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8),
                "h": torch.ones(2).to(torch.float8_e4m3fn), "z": torch.ones(1, dtype=torch.cfloat),
                "e": torch.empty(0)}, "b.pt")
    assert main(["weights", "b.pt", "--values"]) == 0
    assert "all values of 6 tensors are finite" in capsys.readouterr().out


def test_modules_of_ours_hide_none_of_the_users(folder, capsys):
    """The scripts that run in the user's interpreter lie in a folder with names that others use."""
    (__import__("pathlib").Path("far.py")).write_text(
        "try:\n    import objects, layouts, formats\nexcept ImportError:\n    from factories import Net\n")
    torch.save(folder.Net().state_dict(), "a.pt")
    assert asked(capsys, "a.pt", "far:Net")[:2] == (0, [])


def test_the_state_dict_that_fits_is_found(folder, capsys):
    torch.save({"generator": folder.other().state_dict(), "critic": folder.Net().state_dict()}, "a.pt")
    code, rules, data = asked(capsys, "a.pt", "factories:Net")
    assert (code, rules, data["weights"]["within"]) == (0, [], ["critic"])


@pytest.mark.parametrize("layers, reason", [
    (2, "other depth: `lstm` has 3 recurrent layers in the checkpoint, 2 in the model"),
    (4, "other depth: `lstm` has 4 recurrent layers in the model, 3 in the checkpoint")])
def test_depth_of_a_recurrent_layer(folder, capsys, layers, reason):
    (__import__("pathlib").Path("voice.py")).write_text(
        "from torch import nn\nclass Voice(nn.Module):\n    def __init__(self, n):\n"
        "        super().__init__()\n        self.lstm = nn.LSTM(4, 5, n)\n")
    import voice

    torch.save(voice.Voice(3).state_dict(), "a.pt")
    data = asked(capsys, "a.pt", "voice:Voice", [layers])[2]["weights"]["comparison"]
    assert {d["reason"] for d in (*data["missing"], *data["unexpected"])} == {reason}


def test_weight_norm_in_two_forms(folder, capsys):
    (__import__("pathlib").Path("normed.py")).write_text(
        "from torch import nn\ndef new():\n"
        "    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), nn.Linear(2, 2))\n")
    import normed

    state = {k.replace("parametrizations.weight.original0", "weight_g").replace(
        "parametrizations.weight.original1", "weight_v"): v for k, v in normed.new().state_dict().items()}
    torch.save(state, "a.pt")
    data = asked(capsys, "a.pt", "normed:new")[2]["weights"]["comparison"]
    assert any("weight norm in two forms" in d["reason"] for d in data["unexpected"]), data
    assert any("weight norm in two forms" in d["reason"] for d in data["missing"]), data


def test_the_code_of_a_fix_can_be_copied(folder, capsys):
    saved = folder.Net()
    torch.save({"state_dict": {"module.encoder." + k: v for k, v in saved.state_dict().items()}}, "a.pt")
    assert main(["weights", "a.pt", "--model", "factories:Net"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    code = [line for line in lines if line.startswith(("state = ", "model.load"))]
    model = folder.Net()
    exec("\n".join(code), {"torch": torch, "model": model})
    assert torch.equal(model.fc.weight, saved.fc.weight)
