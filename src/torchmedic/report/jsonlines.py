"""One JSON object a line: each finding, and at the end the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from torchmedic.report import jsonfile

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """Findings in their order, as in the `json` format; the last line has `verdict`."""
    for finding in jsonfile.findings_data(diagnosis.findings):
        file.write(json.dumps(finding, allow_nan=False) + "\n")
    data = jsonfile.as_data(diagnosis)
    del data["findings"]
    file.write(json.dumps(data, allow_nan=False) + "\n")
