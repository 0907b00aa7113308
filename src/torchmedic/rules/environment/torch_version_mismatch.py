"""A package was made for another version of torch than the one installed.

## What you see
`operator torchvision::nms does not exist`, `undefined symbol: _ZN2at…`, `PyTorch and torchvision
were compiled with different CUDA versions`, `No module named 'torch._six'`, `cannot import name
'…' from 'torch…'`, `libcudart.so.11.0: cannot open shared object file`.
## Why
Compiled packages (torchvision, torchaudio, extensions) fit exactly one torch release and one CUDA.
Python code fits a range: names come and go between releases.
## Fix
Install torch and the package together from one index, so that pip chooses versions that fit;
build extensions again after torch changed.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = (
    "torch", "undefined symbol", "shared object", "no attribute", "import name", "no module",
    "cuda version", "cuda setup", "procedure could not",
)
VISION = re.compile(r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops"
                    r"|'torchvision::\w+' (?:is only available|with arguments)"
                    r"|compiled with different CUDA (?:major )?versions")
SYMBOL = re.compile(r"(?P<file>[\w.+/-]*?)(?:\.so)?: undefined symbol: |procedure could not be "
                    r"found|symbol not found in flat namespace")
CUDA = re.compile(r"(?P<name>lib(?:cudart|cublas|cudnn|nvrtc|torch\w*|c10\w*|nccl)[\w.-]*): cannot "
                  r"open shared object")
NAME = re.compile(
    r"No module named '(?P<module>torch\w*\.[\w.]+|pytorch_lightning\.[\w.]+"
    r"|transformers\.[\w.]+)'"
    r"|cannot import name '(?P<name>\w+)' from '(?P<where>(?:torch\w*|pytorch_lightning"
    r"|transformers|timm|lightning)[\w.]*)'(?! \(most likely)"
    r"|module '(?P<owner>torch(?:vision|audio|text)?[\w.]*)' has no attribute '(?P<attribute>\w+)'")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if "partially initialized" in failure.message:
        return  # `package-shadowed`
    told = _judged(failure.message)
    if told is not None:
        message, fix = told
        yield Problem(message, where=failure.place, evidence=(raised(failure),), fix=fix)


def _judged(text: str) -> tuple[str, Fix] | None:
    if VISION.search(text):
        return ("the installed torchvision was built for another torch or another CUDA", Fix(
            "install both together from one index, so that they fit",
            command="pip install --force-reinstall torch torchvision"))
    if "CUDA Setup failed despite" in text:
        return ("bitsandbytes has no library for the CUDA of this torch", Fix(
            "install a newer bitsandbytes", "`python -m bitsandbytes` says what it looks for",
            command="pip install --upgrade bitsandbytes"))
    if found := CUDA.search(text):
        return (f"a package was built for another CUDA: it wants `{found['name']}`", Fix(
            "install the build of that package for this torch's CUDA",
            command="python -c \"import torch; print(torch.__version__, torch.version.cuda)\""))
    if SYMBOL.search(text):
        return ("a compiled package was built for another torch than the one installed", Fix(
            "build or install that package again for this torch",
            command="python -c \"import torch; print(torch.__version__)\""))
    if (found := NAME.search(text)) is None:
        return None
    what = found["module"] or (f"{found['owner']}.{found['attribute']}" if found["owner"]
                               else f"{found['where']}.{found['name']}")
    package = what.partition(".")[0].replace("_", "-")
    return (f"`{what}` does not exist in the installed {package}", Fix(
        f"install the version of {package} that this code was written for, or update the code that "
        "asks for it", _hint(what), command=f"pip show {package}"))


def _hint(what: str) -> str:
    if what.startswith("torch._six"):
        return "torch 2.0 removed `torch._six`: packages that use it need a newer release"
    return "the requirements of the program name the version it was written for"


_LOG = """Traceback (most recent call last):
  File "fit.py", line 3, in <module>
    import it
{}
"""

RULE = Rule(
    name="torch-version-mismatch", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("RuntimeError: operator torchvision::nms does not exist"),
              "built for another torch", "pip install --force-reinstall torch torchvision",
              kind="log", title="torchvision"),
        fires(_LOG.format("ImportError: /env/lib/python3.9/site-packages/_C.so: undefined symbol: "
                          "_ZN2at6detail9"), "a compiled package", kind="log", title="symbol"),
        fires(_LOG.format("ModuleNotFoundError: No module named 'torch._six'"),
              "`torch._six` does not exist in the installed torch", kind="log", title="removed"),
        fires(_LOG.format("ImportError: libcudart.so.11.0: cannot open shared object file: No such "
                          "file or directory"), "it wants `libcudart.so.11.0`", kind="log",
              title="another CUDA"),
        quiet(_LOG.format("ModuleNotFoundError: No module named 'yaml'"), kind="log"),
    ),
)
