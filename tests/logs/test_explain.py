"""`torchmedic explain` as a command: what it reads, what it survives, how it ends."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import torchmedic
from torchmedic import registry

SOURCE = Path(torchmedic.__file__).resolve().parents[1]
CASES = SOURCE.parents[0] / "shared" / "cases" / "logs"
CASES = CASES if CASES.exists() else SOURCE.parents[1] / "shared" / "cases" / "logs"
FAILED = (b'epoch 1\nTraceback (most recent call last):\n  File "fit.py", line 3, in <module>\n'
          b"    y = net(x)\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 5x2)\n")
WELL = b"epoch 1 loss 0.9\nepoch 2 loss 0.5\nepoch 3 loss 0.3\ndone\n"


def explain(*arguments: str, text: bytes = b"", form: str = "json",
            **more: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "torchmedic", "explain", *arguments, "--output-format", form]
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return subprocess.run(command, input=text, capture_output=True, timeout=150,
                          env=dict(os.environ, PYTHONPATH=path, NO_COLOR="1"), **more)


def answer(text: bytes, code: int = 1) -> dict:
    done = explain("-", text=text)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_file_and_a_pipe_give_the_same(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(FAILED)
    from_file, piped = explain(str(log)), explain("-", text=FAILED)
    assert from_file.stdout == piped.stdout == explain(text=FAILED).stdout
    assert json.loads(piped.stdout)["verdict"]["category"] == "code"


def test_exit_codes(tmp_path):
    assert explain("-", text=WELL).returncode == 0
    assert explain("-", text=FAILED).returncode == 1
    missing = explain(str(tmp_path / "none.log"))
    assert missing.returncode == 2
    assert b"can't read" in missing.stderr
    assert explain("--nonsense").returncode == 2


@pytest.mark.parametrize("form", ["full", "concise", "json"])
def test_every_format(form):
    done = explain("-", text=FAILED, form=form)
    assert done.returncode == 1
    assert b"shape-mismatch" in done.stdout
    assert b"fit.py" in done.stdout


def test_the_report_can_go_to_a_file(tmp_path):
    file = tmp_path / "answer.json"
    done = explain("-", "-o", str(file), text=FAILED)
    assert done.returncode == 1
    assert done.stdout == b""
    assert json.loads(file.read_text(encoding="utf-8"))["command"] == "explain"


@pytest.mark.parametrize("junk", [
    bytes(range(256)) * 40, b"\xff\xfe\x00" * 500, "训练 é ü 🙂\n".encode("gbk", "replace"),
    b"\r" * 3000 + b"\x1b[31m\x1b]8;;x\x07\n", b"\n" * 5000,
], ids=["bytes", "broken", "another encoding", "escapes", "blank"])
def test_junk_is_survived_and_the_failure_is_still_found(junk):
    assert answer(junk + b"\n" + FAILED)["verdict"]["category"] == "code"
    assert explain("-", text=junk).stdout


def test_what_a_windows_shell_writes():
    assert answer(FAILED.decode().replace("\n", "\r\n").encode("utf-16"))["findings"]
    assert answer(FAILED.replace(b"\n", b"\r\n"))["findings"]


def test_escapes_and_a_bar_glued_to_the_traceback():
    bar = "  3%|▎         | 1/29 [00:00<00:09]\r  6%|▌         | 2/29 [00:00<00:08]".encode()
    red = FAILED.replace(b"epoch 1\n", bar).replace(b"RuntimeError", b"\x1b[91mRuntimeError\x1b[0m")
    found = answer(red)
    assert found["findings"][0]["where"]["line"] == 3
    assert b"\x1b" not in explain("-", text=red, form="full").stdout


def test_a_traceback_as_one_string():
    text = FAILED.decode().partition("\n")[2].replace('"', '\\"').replace("\n", "\\n")
    assert answer(f'{{"level": "error", "msg": "{text}"}}\n'.encode())["findings"][0]["where"]["line"] == 3


NOTEBOOK = b"""---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
Cell In[7], line 5
      4 optimizer.zero_grad()
----> 5 out = net(x)

File ~/work/net.py:33, in Net.forward(self, x)
     32 x = self.conv(x)
---> 33 return self.head(x)

RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 5x2)
"""


def test_a_notebook_s_traceback():
    where = answer(NOTEBOOK)["findings"][0]["where"]
    assert (where["file"], where["line"], where["function"]) == ("~/work/net.py", 33, "forward")


def test_a_huge_log_streams_in_little_memory_and_keeps_its_line_numbers(tmp_path):
    log = tmp_path / "huge.log"
    ordinary = b"".join(b"step %d loss 0.5 and more words to make the line long\n" % n
                        for n in range(20_000))
    with log.open("wb") as file:
        for _ in range(60):
            file.write(ordinary)
        file.write(FAILED)
        for _ in range(60):
            file.write(ordinary)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))

    done = explain(str(log), preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["findings"][0]["evidence"][0]["source"] == f"log:{60 * 20_000 + 2}"
    assert "passed over" in found["notes"][0]


@pytest.mark.parametrize("text", [
    b"", b"epoch 1\nKilled by signal, exit code 3\n", b"Traceback (most recent call last):\n",
    b"ERROR: failed (exitcode: 1) local_rank: 0 (pid: 9)\n", FAILED[:-60][:80],
    b"me@node:~$ python fit.py\nepoch 1/20 loss 2\nepoch 3/20 loss 1\nme@node:~$\n",
    b"  8%|#         | 8/100 [00:10<01:00]\n",
], ids=["empty", "exit", "header", "rank", "cut", "prompt", "bar"])
def test_a_log_without_the_cause_is_never_called_healthy(text):
    found = answer(text)
    assert found["verdict"]["category"] == "unknown"
    assert found["next_checks"]


def test_the_retry_command_is_the_logs_own():
    text = b"(env) me@node:~/x$ CUDA_VISIBLE_DEVICES=1 python train.py --lr 1e-3\n" + FAILED
    assert answer(text)["retry"] == \
        "CUDA_VISIBLE_DEVICES=1 torchmedic run -- python train.py --lr 1e-3"
    assert "retry" not in answer(FAILED)


def test_secrets_of_the_command_are_masked():
    text = b"$ WANDB_API_KEY=0123456789abcdef0123 python train.py --token abcdef12345\n" + FAILED
    assert "0123456789abcdef0123" not in json.dumps(answer(text))


def test_a_rule_is_loaded_for_the_logs_it_speaks_of():
    for name, rule, example in registry.cases():
        if example.kind == "log" and example.fires:
            assert rule.name in [r.name for r in registry.for_log(example.text)], name


def truth() -> list[dict]:
    lines = (CASES / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.skipif(not CASES.exists(), reason="the cases are not here")
def test_the_cases_are_told_apart():
    right = wanted = 0
    for case in truth():
        found = json.loads(explain(str(CASES / case["file"])).stdout)
        verdict, first = found["verdict"], (found["findings"] or [None])[0]
        allowed = {case["category"], *case.get("also_ok", {}).get("category", ())}
        if case["kind"] == "none":
            assert verdict["category"] in allowed, case["file"]
            assert not [f for f in found["findings"] if f["severity"] == "error"], case["file"]
        elif not case.get("answerable_from_log", True) or case["category"] == "unknown":
            assert first is None or first["confidence"] != "certain" or \
                verdict["category"] in {*allowed, "unknown"}, case["file"]
        else:
            wanted += 1
            right += verdict["category"] in allowed
    assert right >= 0.97 * wanted
