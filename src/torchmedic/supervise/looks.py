"""What was seen in the steps that were looked at closely, from a process's events."""

from __future__ import annotations

from typing import Any

from torchmedic.observed.graphs import Backward, Node
from torchmedic.observed.kept import Kept
from torchmedic.observed.nonfinite import Cause, NonFinite
from torchmedic.observed.updates import Optimizer, Parameters, Unregistered, Update
from torchmedic.supervise.exceptions import frames_of, value_of
from torchmedic.supervise.spools import Event, Spool, built


def backwards_of(spool: Spool) -> tuple[Backward, ...]:
    return tuple(built(spool.all("backward"), _backward))


def _backward(event: Event) -> Backward:
    loss = event["loss"]
    known = loss.get("nans") is not None
    return Backward(
        frames=frames_of(event["frames"]), value=loss.get("value"),
        finite=(not loss["nans"] and (loss.get("value") is not None or loss["shape"] != []))
        if known else None,
        shape=tuple(loss["shape"]), way=_way(event["way"]),
        losses=tuple(_way(w) for w in event["losses"]),
        older=_node(event["older"]) if event.get("older") else None,
        older_than=event["older"]["before_step"] if event.get("older") else None,
        nodes=int(event["nodes"]), whole=bool(event["whole"]), leaves=int(event["leaves"]),
        retain=bool(event["retain"]), create=bool(event["create"]), phase="backward",
        epoch=event.get("epoch"), batch=event.get("batch"), step=int(event.get("step") or 0))


def kept_of(spool: Spool) -> tuple[Kept, ...]:
    return tuple(built(spool.all("kept"), lambda e: Kept(
        e["name"], e["what"], int(e["count"]), int(e["bytes"]), bool(e["older"]),
        bool(e["training"]), frames_of(e["frames"]), e.get("epoch"), e.get("batch"),
        int(e.get("step") or 0))))


def non_finite_of(spool: Spool) -> NonFinite | None:
    return next(built(spool.all("nonfinite"), _non_finite), None)


def _non_finite(event: Event) -> NonFinite:
    causes = tuple(Cause(
        c["name"].partition("Backward")[0], c["what"], c.get("low"), c.get("high"),
        _shape(c.get("shape")), c.get("exponent")) for c in event["causes"])
    return NonFinite(
        event["value"], frames_of(event["frames"]), tuple(event["before"]),
        tuple(event["parameters"]), causes,
        tuple((int(i["count"]), int(i["of"])) for i in event["inputs"]),
        event.get("epoch"), event.get("batch"), int(event.get("step") or 0))


def updates_of(spool: Spool) -> tuple[Update, ...]:
    optimizers = {o.key: o for o in built(spool.all("optimizer"), _optimizer)}
    return tuple(built(spool.all("update"), lambda event: _update(event, optimizers)))


def _optimizer(event: Event) -> Optimizer:
    return Optimizer(int(event["optimizer"]), event["type"], tuple(event["groups"]))


def _update(event: Event, optimizers: dict[int, Optimizer]) -> Update:
    return Update(
        optimizers[int(event["optimizer"])], int(event["step"]), frames_of(event["frames"]),
        int(event["parameters"]), int(event["graded"]), event.get("cleared"),
        event.get("finite"), event.get("zero"), event.get("norm"), event.get("weights"),
        tuple(event.get("rates") or ()), event.get("epoch"), event.get("batch"))


def parameters_of(spool: Spool) -> Parameters | None:
    """As they were at the end of the last window."""
    return next(iter(reversed(list(built(spool.all("parameters"), _parameters)))), None)


def _parameters(event: Event) -> Parameters:
    return Parameters(
        int(event["step"]), int(event["windows_steps"]), event["counts"],
        tuple(event["outside"]), tuple(event["unreached"]), tuple(event["frozen"]),
        tuple(event["detached"]), bool(event["last"]), tuple(event["roots"]), tuple(event["alone"]),
        int(event["stale"]), tuple(tuple(shape) for shape in event["stale_shapes"]),
        tuple(_unregistered(told) for told in event["unregistered"]))


def _unregistered(told: dict[str, Any]) -> Unregistered:
    shape = told.pop("shape", None)
    return Unregistered(**told, shape=_shape(shape))


def _way(nodes: list[dict[str, Any]]) -> tuple[Node, ...]:
    return tuple(_node(node) for node in nodes)


def _node(told: dict[str, Any]) -> Node:
    return Node(told["name"], _shape(told.get("shape")),
                tuple(_shape(s) for s in told.get("inputs") or ()), told.get("dim"),
                value_of(told["target"]) if told.get("target") else None)


def _shape(told: list[int] | None) -> tuple[int, ...] | None:
    return None if told is None else tuple(told)
