"""Diagnoses to show: each has expected files beside this one."""

from torchmedic.model import Diagnosis, Evidence, Finding, Fix, Place, Verdict

MODEL = "net.py"
SOURCE = "import torch\n\n\ndef forward(self, x):\n    out, _ = self.lstm(x.flatten(2))  # 特征\n"
FINDINGS = (
    Finding(
        "recurrent-input-size", "code", "error", "likely",
        "LSTM `lstm` expects 256 features for each time step and gets 4096",
        Place(MODEL, 5, function="forward", module="head.lstm", phase="forward", epoch=1,
              batch=2, step=1, rank=0, pid=4711),
        (Evidence("input of `lstm` has shape (2, 16, 4096), and 4096 = 256 channels x 4 x 4, "
                  "which is what four pools leave of 64 x 64 pixels", "exception"),
         Evidence("`input_size` is 256", "module")),
        Fix("make `input_size` the number of features that reach it",
            "`nn.AdaptiveAvgPool3d((None, 1, 1))` before it keeps 256 for every picture size.",
            "unsafe", "-        self.lstm = nn.LSTM(256, 512)\n"
            "+        self.lstm = nn.LSTM(4096, 512)\n",
            "python train.py --size 64"),
        (1,)),
    Finding("exception-swallowed", "code", "error", "certain",
            "`except Exception` in `train` caught it and the program ended without a word",
            Place("train.py", 12)),
    Finding("scheduler-before-optimizer", "code", "warning", "certain",
            "`scheduler.step()` runs before `optimizer.step()`, so the schedule's first value "
            "is never used", Place("train.py", 33, function="main"), (),
            Fix("call it after `optimizer.step()`")),
)
PROCESS = {"exit_code": 1, "signal": None, "duration_s": 12.34, "overhead_s": 0.02}
NORMAL = Diagnosis(
    "run", Verdict("code", "recurrent-input-size", FINDINGS[0].message), FINDINGS, PROCESS,
    retry="python train.py --mini_batch_size 4 --val_mini_batch_size 4 --name 'my run' "
          "--num_workers 2 --n_sample_points 8192",
    run_folder=".torchmedic/runs/20261130-201500-ab12",
)
CJK = Diagnosis(
    "explain", Verdict("memory", "host-out-of-memory", "页面文件太小"), (
        Finding("host-out-of-memory", "memory", "error", "certain",
                "[WinError 1455] 页面文件太小，无法完成操作。"
                "模型训练进程在加载动态链接库时无法提交内存",
                Place("训练/主程序.py", 10, function="加载数据"),
                (Evidence("页面文件太小，无法完成操作，"
                          "每个工作进程都要提交大约三吉字节的内存", "log:15"),),
                Fix("减少工作进程的数量",
                    "每个进程都会重新导入 torch，所以提交的内存随进程数量增长，把数量减半")),))
HOSTILE = Diagnosis(
    "explain", Verdict("data", "corrupt-sample", "x"), (
        Finding("corrupt-sample", "data", "error", "certain",
                "cannot read \x1b]0;owned\x07\x1b[31m[bold red]x[/bold red] :smile: \u202egpj.exe\n"
                "second line\r\x08 with \x9b2J and \udcff",
                Place("a\nb\x1b[2K.py", 3, function="[link=x]f"),
                (Evidence("[/]\tpath `\x00`", "log:[1]"),),
                Fix("[red]remove[/red] it", "", "display-only", None, "rm 'a\nb' \x1b[2J")),),
    {"exit_code": 1, "signal": None}, notes=("\x1b[1mnote",), retry="python '\x1b[31m.py'")
UNKNOWN = Diagnosis(
    "run", Verdict("unknown", None, "the program was ended by SIGKILL, and nothing observed says "
                   "why"), (), {"signal": "SIGKILL", "duration_s": 3.0},
    next_checks=("dmesg -T | tail -n 50", "journalctl -k -n 50"))
CLEAN = Diagnosis("run", Verdict("none", None, "no failure found"),
                  process={"exit_code": 0, "duration_s": 301.22, "overhead_s": 0.4},
                  run_folder=".torchmedic/runs/20261130-201500-ab12")
ALL = {"normal": NORMAL, "cjk": CJK, "hostile": HOSTILE, "unknown": UNKNOWN, "clean": CLEAN}
