"""Secrets are masked, and what only looks like one stays."""

import time

import pytest

from torchmedic import redact


@pytest.mark.parametrize("given, masked", [
    (["--api-key", "abc"], ["--api-key", "***"]),
    (["--api_key=abc", "x"], ["--api_key=***", "x"]),
    (["--password=a b", "--lr", "1"], ["--password=***", "--lr", "1"]),
    (["--wandb-key", "--lr", "1"], ["--wandb-key", "--lr", "1"]),
    (["env", "WANDB_API_KEY=abc", "HF_TOKEN=q"], ["env", "WANDB_API_KEY=***", "HF_TOKEN=***"]),
    (["TOKEN=x y"], ["TOKEN=***"]),
    (["bash", "-c", "SECRET='a b' python t.py --token q --lr 1"],
     ["bash", "-c", "SECRET=*** python t.py --token *** --lr 1"]),
    (["hf_abcdefghijkl"], ["***"]),
    (["--x=sk-proj-abcdefghijklmnop"], ["--x=***"]),
    (["ghp_0123456789abcdef0123"], ["***"]), (["AKIAIOSFODNN7EXAMPLE"], ["***"]),
    (["s3://me:pass@host/p"], ["s3://***@host/p"]),
    (["https://:tok@host/p"], ["https://***@host/p"]),
])
def test_masked(given, masked):
    assert redact.argument_list(given) == masked


@pytest.mark.parametrize("argument", [
    "--tokenizer=bert", "--max-tokens=512", "--pad_token=[PAD]", "--max_new_token=9",
    "https://host:8080/path", "--key=3", "s3://bucket/a", "--lr=1e-3", "task-sk-small",
    "--num-tokens", "--tokenizer",
])
def test_left_alone(argument):
    assert redact.argument_list([argument, "value"]) == [argument, "value"]


def test_text():
    said = redact.text('401 for url: Authorization: Bearer abcdefgh.ijk, {"password": "x y"}')
    assert said == '401 for url: Authorization: Bearer ***, {"password": ***}'


def test_truth_values_are_no_secrets():
    said = "`--use_custom_token False` is true"
    assert redact.text(said) == said
    assert redact.text("--auth_token False-1") == "--auth_token ***"


@pytest.mark.parametrize("part", ["a.", "a-", "x://", "token='", "--token ", "eyJaaaaaaaa.", "a"])
def test_long_lines_take_no_time(part):
    began = time.process_time()
    redact.text(part * 20_000)
    assert time.process_time() - began < 1
