"""The forms in which one traceback comes: each gives the same exception at the same line."""

from __future__ import annotations

import json

import pytest

from torchmedic.logs.commandline import command_in
from torchmedic.logs.completion import completed
from torchmedic.logs.told import told
from torchmedic.logs.tracebacks import read_log

ERROR = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 5x2)"
PLAIN = f'''Traceback (most recent call last):
  File "/home/u/fit.py", line 9, in <module>
    main()
  File "/home/u/net.py", line 33, in forward
    x = self.fc(x)
{ERROR}
'''
BOX = f'''╭───────────── Traceback (most recent call last) ─────────────╮
│ /home/u/fit.py:9 in <module>                                │
│                                                             │
│ ❱ 9 │   main()                                              │
│                                                             │
│ /home/u/net.py:33 in                                        │
│ forward                                                     │
│                                                             │
│   32 │   │   x = self.conv(x)                               │
│ ❱ 33 │   │   x = self.fc(x)                                 │
╰─────────────────────────────────────────────────────────────╯
{ERROR}
'''
WINDOW = f'''{{}}: RuntimeError
{ERROR.partition(": ")[2]}
  File "/home/u/net.py", line 33, in forward
    x = self.fc(x)
  File "/home/u/fit.py", line 9, in <module>
    main()
'''
SUMMARY = f'''torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 82)
  traceback : {PLAIN.replace(chr(10), chr(10) + "  ")}
'''


def each(form: str) -> str:
    return "".join(form.format(line) + "\n" for line in PLAIN.splitlines())


FORMS = {
    "plain": PLAIN, "box": BOX, "window": WINDOW.format("Exception has occurred"),
    "window in Chinese": WINDOW.format("发生异常"), "summary of the launcher": SUMMARY,
    "indented": each("    {}"), "quoted": each("> {}"), "mail": each("May  1 10:00:00 n1 py[7]: {}"),
    "padded": each("{:<120}"), "beginning lost": PLAIN.partition("\n")[2],
    "a line of another process": PLAIN.replace("    main()\n", "Epoch: [0][1/9] loss 2\n"),
    "each line twice": "".join(line * 2 for line in PLAIN.splitlines(keepends=True)),
    "last line once more": PLAIN + ERROR + "\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_failure(form):
    failures = [f for f in read_log(FORMS[form]).failures if f.short_type == "RuntimeError"]
    assert len(failures) == 1
    assert failures[0].message == ERROR.partition(": ")[2]
    frame = failures[0].user_frame
    assert frame is not None
    assert (frame.file, frame.line, frame.function) == ("/home/u/net.py", 33, "forward")


def test_lines_of_a_container(tmp_path):
    from torchmedic.logs import stream

    path = tmp_path / "c-json.log"
    path.write_text("".join(json.dumps({"log": line + "\n", "stream": "stderr"},
                                       separators=(",", ":")) + "\n"
                            for line in PLAIN.splitlines()))
    with path.open("rb") as file:
        failure, = read_log(stream.read(file).lines).failures
    assert failure.user_frame.line == 33


@pytest.mark.parametrize(("text", "kind", "message"), [
    ("terminate called after throwing an instance of 'std::bad_alloc'\n"
     "  what():  std::bad_alloc\nAborted (core dumped)\n", "std::bad_alloc", "std::bad_alloc"),
    ("[rank1]: terminate called after throwing an instance of 'c10::Error'\n"
     "[rank1]:   what():  CUDA error: an illegal memory access was encountered\n"
     "[rank1]: CUDA kernel errors might be reported later.\n[rank1]: \n"
     "[rank1]: Exception raised from f at a.cpp:1\n", "c10::Error",
     "CUDA error: an illegal memory access was encountered\n"
     "CUDA kernel errors might be reported later."),
    ("libc++abi: terminating due to uncaught exception of type std::runtime_error: no file\n",
     "std::runtime_error", "no file"),
])
def test_exceptions_of_cpp(text, kind, message):
    failure, = read_log(text).failures
    assert (failure.type, failure.message) == (kind, message)


@pytest.mark.parametrize(("line", "command"), [
    ("$ python fit.py --lr 1", "python fit.py --lr 1"),
    ("!python fit.py", "python fit.py"), ("%run fit.py --x", "python fit.py --x"),
    ("+ srun --gres=gpu:1 python -u fit.py", "srun --gres=gpu:1 python -u fit.py"),
    ("➜  p git:(main) ✗ python fit.py", "python fit.py"),
    ("C:\\p> python fit.py", "python fit.py"),
    ("D:\\envs\\t\\python.exe D:/p/fit.py", "D:\\envs\\t\\python.exe D:/p/fit.py"),
    ('"C:\\Program Files\\Py\\python.exe" fit.py', '"C:\\Program Files\\Py\\python.exe" fit.py'),
    ("$ nohup python fit.py > log.txt 2>&1 &", "python fit.py"),
    ("$ python fit.py 2>&1 | tee log.txt", "python fit.py"),
    ("$ cd p && uv run python fit.py", "uv run python fit.py"),
    ("$ conda run -n t python fit.py", "conda run -n t python fit.py"),
    ("$ python fit.py \\\n   --lr 1 \\\n   --bs 4", "python fit.py --lr 1 --bs 4"),
    ("$ bash train.sh 3", "bash train.sh 3"),
    ("$ deepspeed --num_gpus=2 fit.py", "deepspeed --num_gpus=2 fit.py"),
    ("I run python fit.py and it fails", None), ("$ pip install torch", None),
    ("$ sbatch train.sbatch", None),
])
def test_the_command_of_a_log(line, command):
    assert command_in([*line.split("\n"), *PLAIN.splitlines()]) == command


def test_what_a_log_says_of_its_run():
    lines = ["Namespace(batch_size=1, val_batch_size=8)", "Epoch 1", "Epoch 2", "Epoch 3 batch 4"]
    assert (told(lines, 4).batch_size, told(lines, 4).epochs) == (1, 2)
    assert told(["--batch-size 4 --val-batch-size 1"], 1).batch_size == 4
    assert told(["nothing of that"], 1).batch_size is None


@pytest.mark.parametrize(("last", "done"), [
    ("Training complete", True), ("done", True), ("Fine-tuning finished in 3 h", True),
    ("`Trainer.fit` stopped: `max_epochs=10` reached.", True), ("epoch 3 loss 0.2", False),
    ("Training completed. Do not forget to share it", True), ("10 epochs completed in 2 h", True),
    ("Finished training", True), ("job 3 completed with exit code 1", False),
    ("training has not finished", False), ("error: training done badly", False),
])
def test_a_program_that_says_it_is_done(last, done):
    assert (completed(["epoch 1", last]) is not None) is done
