"""A module or a library that the program imports is not installed where it runs.

## What you see
`ModuleNotFoundError: No module named 'cv2'`, `ImportError: libGL.so.1: cannot open shared object
file`, `OSError: [WinError 126] … c10.dll`.
## Why
The package is missing in this environment, has another name than its module, or was installed for
another Python; a module of the project is only found from the project's folder; a system library
that a package needs is missing.
## Fix
Install it with the Python that runs the program (`python -m pip install …`), or start from the
folder the module is in.
## When this is fine
Where the program catches the exception and goes on without the module.
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
    "importerror", "modulenotfounderror", "oserror", "no module named",
    "cannot open shared object", "dll",
)
MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)'?")
LIBRARY = re.compile(r"(?P<name>lib[\w.+-]+\.so[.\d]*): cannot open shared object file")
DLL = re.compile(r"WinError 12[67]\].*|DLL load failed while importing (?P<name>\w+)")
PACKAGES = {
    "cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn",
    "skimage": "scikit-image", "skvideo": "scikit-video", "attr": "attrs", "git": "gitpython",
    "dateutil": "python-dateutil", "bs4": "beautifulsoup4", "Bio": "biopython",
    "pytorch_lightning": "pytorch-lightning", "segmentation_models_pytorch":
    "segmentation-models-pytorch", "tensorboardX": "tensorboardX", "apex": "",
    "pycocotools": "pycocotools", "timm": "timm", "einops": "einops", "torch": "torch",
    "torchvision": "torchvision", "torchaudio": "torchaudio", "wandb": "wandb",
    "tensorboard": "tensorboard", "matplotlib": "matplotlib", "numpy": "numpy",
}
LOCAL = ("utils", "models", "model", "data", "dataset", "datasets", "config", "configs", "lib",
         "src", "core", "common", "networks", "tools", "options", "modules", "losses", "train")
SYSTEM = {"libGL.so.1": "libgl1", "libgthread-2.0.so.0": "libglib2.0-0",
          "libsndfile.so.1": "libsndfile1", "libgomp.so.1": "libgomp1"}
ELSEWHERE = re.compile(r"libcud|libnv|libcublas|libnccl|libtorch|libc10|torch\._six")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.short_type not in ("ModuleNotFoundError", "ImportError", "OSError"):
        return
    text = failure.message.strip()
    if any("serialization" in f.file or "torch.load(" in (f.text or "") for f in failure.frames):
        return  # `checkpoint-class-missing`
    if ELSEWHERE.search(text.partition(":")[0]) or "torch._six" in text:
        return  # `torch-version-mismatch` says more
    told = _module(text) or _library(text)
    if told is not None:
        message, fix = told
        yield Problem(message, where=failure.place, evidence=(raised(failure),), fix=fix)


def _module(text: str) -> tuple[str, Fix] | None:
    found = MODULE.match(text)
    if found is None:
        return None
    name, root = found["name"], found["name"].partition(".")[0]
    if root != name and root in PACKAGES:
        return None  # the package is there, in another version
    if root in LOCAL:
        return (f"the module `{name}` is not found: it looks like one of the project's own",
                Fix("start the program from the project's folder, or `python -m package.module`",
                    "or set PYTHONPATH to that folder; a package needs its submodules cloned too"))
    package = PACKAGES.get(root, root.replace("_", "-"))
    if not package:
        return (f"the module `{name}` is not installed for the Python that runs the program",
                Fix(f"build `{root}` from its source: the package of that name on PyPI is another"))
    return (f"the module `{name}` is not installed for the Python that runs the program",
            Fix(f"install the package that holds `{root}`, with that Python",
                "if it is installed: another Python runs; compare `which python`",
                command=f"python -m pip install {package}"))


def _library(text: str) -> tuple[str, Fix] | None:
    if found := LIBRARY.search(text):
        package = SYSTEM.get(found["name"])
        return (f"the system library `{found['name']}` is missing", Fix(
            "install it with the system's package manager"
            + ("; or `opencv-python-headless`, which does not need it" if "libGL" in found["name"]
               else ""), command=f"apt-get install {package}" if package else None))
    if DLL.search(text) and "1455" not in text:
        return ("a DLL that a package needs could not be loaded", Fix(
            "install the Microsoft Visual C++ Redistributable; then install the package again"))
    return None


_LOG = """Traceback (most recent call last):
  File "fit.py", line 3, in <module>
    import it
{}
"""

RULE = Rule(
    name="missing-module", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("ModuleNotFoundError: No module named 'cv2'"), "`cv2` is not installed",
              "pip install opencv-python", kind="log", title="another name"),
        fires(_LOG.format("ModuleNotFoundError: No module named 'utils.metrics'"),
              "one of the project's own", "python -m package.module", kind="log", title="own"),
        fires(_LOG.format("ImportError: libGL.so.1: cannot open shared object file: No such file "
                          "or directory"), "the system library `libGL.so.1`", kind="log",
              title="library"),
        fires("import torch\nimport no_such_module_here\n",
              "install the package that holds `no_such_module_here`", title="a run"),
        quiet(_LOG.format("OSError: [Errno 2] No such file or directory: 'a.png'"), kind="log"),
    ),
)
