"""What a file is by its first bytes, where it is no checkpoint that torch reads."""

from __future__ import annotations

import re
from pathlib import PurePath

from torchmedic.observed.weights import Defect

POINTER = b"version https://git-lfs"
_MARKUP = re.compile(rb"\s*(?:<!doctype|<html|<head|<\?xml|<!--|<body)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>\s*([^<]{1,80})", re.IGNORECASE)
_GLOBAL = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n")
_SIZE = re.compile(rb"\nsize (\d{1,20})")
_MAGIC = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras writes", "other"),
    (b"GGUF", "a GGUF file (llama.cpp)", "other"),
    (b"\x1f\x8b", "a gzip archive", "other"), (b"BZh", "a bzip2 archive", "other"),
    (b"\xfd7zXZ\x00", "an xz archive", "other"), (b"\x28\xb5\x2f\xfd", "a zstd archive", "other"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "other"), (b"Rar!\x1a\x07", "a RAR archive", "other"),
    (b"\x89PNG", "a PNG image", "other"), (b"\xff\xd8\xff", "a JPEG image", "other"),
    (b"%PDF", "a PDF document", "other"), (b"\x7fELF", "a program or library (ELF)", "other"),
    (b"SQLite format 3", "an SQLite database", "other"),
    (b"Salted__", "a file encrypted by OpenSSL", "encrypted"),
    (b"age-encryption.org", "a file encrypted by age", "encrypted"),
    (b"-----BEGIN PGP MESSAGE", "a file encrypted by PGP", "encrypted"),
)
_PRODUCERS = (b"pytorch", b"onnx", b"tf2onnx", b"keras2onnx", b"skl2onnx", b"paddle")


def defect(head: bytes, size: int, file: str = "") -> Defect:
    """Names a file that is none of the formats of checkpoints. head: its first 4096 bytes."""
    if not size:
        return Defect("empty", "the file is empty")
    if not head.strip(b"\0"):
        return Defect("damaged", f"its first {len(head)} bytes are zero: room that was reserved "
                                 "and never written")
    for magic, what, kind in _MAGIC:
        if head.startswith(magic):
            return Defect(kind, what)
    return _text(head, size) or _binary(head, file)


def _text(head: bytes, size: int) -> Defect | None:
    if head.startswith(POINTER):
        told = _SIZE.search(head)
        real = f", of a file of {int(told[1]):,} bytes" if told else ""
        return Defect("pointer", f"a Git LFS pointer of {size} bytes{real}")
    if _MARKUP.match(head):
        title = _TITLE.search(head)
        named = f", with the title {_words(title[1])!r}" if title else ""
        return Defect("page", f"a web page{named}")
    if not _readable(head):
        return None
    first = _words(head.strip().partition(b"\n")[0])
    if first[:1] in ("{", "["):
        return Defect("json", f"a text in JSON: {first!r}")
    return Defect("text", f"a text: {first!r}") if first else None


def _readable(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[:error.start].decode("utf-8")
    return all(c.isprintable() or c in "\n\r\t" for c in text)


def _words(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split())[:80]


def _binary(head: bytes, file: str) -> Defect:
    name = PurePath(file).name.lower()
    if head[257:262] == b"ustar":
        inner = head[:100].rstrip(b"\0").decode("utf-8", "replace")
        return Defect("other", f"a tar archive that begins with {inner!r}")
    if head[4:8] == b"TFL3":
        return Defect("other", "a TensorFlow Lite model")
    if head[:1] == b"\x08" and (any(word in head[:64].lower() for word in _PRODUCERS)
                                or name.endswith(".onnx")):
        return Defect("other", "an ONNX model")
    if name.endswith(".pb"):
        return Defect("other", "a TensorFlow graph")
    if name.endswith(".msgpack"):
        return Defect("other", "weights of Flax (msgpack)")
    return Defect("damaged", f"its first bytes are {head[:8].hex(' ')}, which no format of "
                             "checkpoints has")


def is_pickle(head: bytes) -> bool:
    """Protocols 2 to 5; or 0 and 1, which begin with a container or a global."""
    if head[:1] == b"\x80":
        return len(head) == 1 or head[1] <= 5
    if head[:2] in (b"(d", b"(l", b"}q", b"]q"):
        return True
    return head[:1] == b"c" and _GLOBAL.match(head) is not None


def other_name(suffix: str, found: str) -> str | None:
    """A note where the file's name promises another format."""
    if suffix == ".safetensors" and found != "safetensors":
        return f"the name ends in `.safetensors`, the file is {found}: `torch.load` reads it"
    if found == "safetensors" and suffix in (".pt", ".pth", ".bin", ".ckpt"):
        return (f"the name ends in `{suffix}`, the file is safetensors: "
                "`safetensors.torch.load_file` reads it, `torch.load` does not")
    return None
