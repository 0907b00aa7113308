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
    assert main(["weights", "a.pt", "--values"]) == 0
    assert "`fc.bias` holds 1 NaN and 0 Inf" in capsys.readouterr().out
