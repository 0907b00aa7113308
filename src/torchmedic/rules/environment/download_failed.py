"""A model or a data set could not be fetched from the network.

## What you see
`URLError: <urlopen error …>`, `We couldn't connect to 'https://huggingface.co'`, `HTTP Error 403`,
`GatedRepoError: 401 Client Error`, `CERTIFICATE_VERIFY_FAILED`, `Max retries exceeded with url`.
## Why
The machine has no way out (compute nodes often have none), a proxy or a certificate stands between,
the server refuses or limits, or the model needs a login or an accepted licence.
## Fix
Fetch it once where there is a network and give the program the local path; or log in, or set the
proxy.
## When this is fine
Where the program goes on with what it has.
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
    "urlopen", "http error", "httperror", "client error", "couldn't connect", "max retries",
    "certificate_verify", "gatedrepo", "repositorynotfound", "localentrynotfound",
    "name resolution", "connecttimeout", "readtimeout", "resolve host", "remotedisconnected",
    "offlinemode",
)
TYPES = ("URLError", "HTTPError", "HfHubHTTPError", "GatedRepoError", "RepositoryNotFoundError",
         "LocalEntryNotFoundError", "ConnectTimeout", "ReadTimeout", "MaxRetryError", "ProxyError",
         "SSLError", "RemoteDisconnected", "OfflineModeIsEnabled", "EntryNotFoundError",
         "ConnectError")
LOGIN = re.compile(r"\b401\b|gated|authenticat|log ?in|Access to model|accept the", re.IGNORECASE)
REFUSED = re.compile(r"\b(?:403|404|429)\b|RepositoryNotFound|Repository Not Found|EntryNotFound")
CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLError|certificate verify failed")
NETWORK = re.compile(r"urlopen error|couldn't connect to '?https?:|Max retries exceeded with url"
                     r"|Temporary failure in name resolution|Name or service not known"
                     r"|HTTP Error \d|\d{3} (?:Client|Server) Error"
                     r"|is not the path to a directory containing")


def in_failure(failure: Failure) -> Iterator[Problem]:
    text = f"{failure.type} {failure.message}"
    if failure.short_type not in TYPES and not NETWORK.search(failure.message):
        return
    if CERTIFICATE.search(text):
        what, fix = "the server's certificate could not be verified", Fix(
            "install the certificates of your network, or set the time of the machine right",
            command="python -m pip install --upgrade certifi")
    elif LOGIN.search(text):
        what, fix = "the server asks for a login, or for a licence to be accepted", Fix(
            "accept the licence on the model's page and log in", "on a compute node: fetch it "
            "before and set HF_HUB_OFFLINE=1", command="huggingface-cli login")
    elif REFUSED.search(text):
        what, fix = "the server does not give the file: wrong name, no right, or too many " \
            "requests", Fix("look at the name and at the page in a browser; wait after a 429")
    else:
        what, fix = "the file could not be fetched: the network can't be reached", Fix(
            "fetch it where there is a network and give the program the local path",
            "compute nodes often have no way out; HTTPS_PROXY names a proxy")
    yield Problem(what, where=failure.place, evidence=(raised(failure),), fix=fix,
                  confidence="likely")


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    net = resnet18(weights="DEFAULT")
{}
"""

RULE = Rule(
    name="download-failed", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("urllib.error.URLError: <urlopen error [Errno 110] Connection timed "
                          "out>"), "the network can't be reached", "local path", kind="log",
              title="network"),
        fires(_LOG.format("huggingface_hub.errors.GatedRepoError: 401 Client Error."),
              "asks for a login", kind="log", title="login"),
        fires(_LOG.format("urllib.error.HTTPError: HTTP Error 403: rate limit exceeded"),
              "does not give the file", kind="log", title="refused"),
        fires(_LOG.format("urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] "
                          "certificate verify failed>"), "certificate", kind="log", title="tls"),
        quiet(_LOG.format("ConnectionResetError: [Errno 104] Connection reset by peer"), kind="log",
              title="a worker's socket"),
    ),
)
