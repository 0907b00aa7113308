"""What rewrites or traces programs sees the same program with and without the probes."""

import re
import shutil

import pytest
from launching import PYTHON, Programs, environment, observed_environment

from torchmedic.supervise.spools import read_spools

TRACED = '''
import collections, copy, io, json, re, sys, threading, warnings
import torch
from torch import nn
from torch.nn import functional as F
torch.set_num_threads(1)
torch.manual_seed(0)

def numbers(tensor):
    return [float(v).hex() for v in tensor.detach().flatten().tolist()[:50]]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(4)
    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = F.relu(layer(x)) * scale
        return self.norm(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.block(x, scale=0.5)).flatten(1)

x = torch.randn(3, 4)
told = {}
'''

COMPILED = TRACED + '''
import torch._dynamo
from torch._dynamo.utils import counters

class Counting:
    def __init__(self, then):
        self.graphs, self.then = [], then
    def __call__(self, graph, inputs):
        self.graphs.append([str(n.op) + " " + str(n.target if isinstance(n.target, str) else n.name) for n in graph.graph.nodes])
        return graph.forward if self.then is None else self.then(graph, inputs)

def what_dynamo_did(counting, hooks=False):
    # An optimizer's step runs our hooks between its parts: one frame fewer is looked at there,
    # while what is compiled is the same.
    return {"graphs": counting.graphs, "breaks": dict(counters["graph_break"]),
            "frames": None if hooks else dict(counters["frames"]),
            "unimplemented": dict(counters["unimplemented"]), "stats": dict(counters["stats"])}

def fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(1)

def training(then, sizes):
    fresh()
    counting = Counting(then)
    model = Net()
    compiled = torch.compile(model, backend=counting, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for size in sizes:
        optimizer.zero_grad()
        loss = compiled(torch.ones(size, 4) * size).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return {"losses": losses, "weights": numbers(model.head.weight), **what_dynamo_did(counting)}

told["eager backend"] = training(None, (3, 3, 3, 5, 7, 3))  # a new size compiles again, once
if sys.argv[1] == "inductor":
    from torch._inductor.compile_fx import compile_fx
    told["inductor"] = training(compile_fx, (3, 3))

def broken_graph():
    fresh()
    counting = Counting(None)
    model = Net()
    def step(x):
        y = model(x)
        print("in between", flush=True)  # one break of the program's own
        return model(y @ torch.ones(2, 4))
    results = [numbers(torch.compile(step, backend=counting)(x)) for _ in range(2)]
    return {"results": results, **what_dynamo_did(counting)}
told["a break of its own"] = broken_graph()

def explained():
    fresh()
    found = torch._dynamo.explain(Net())(x)
    return [found.graph_count, found.graph_break_count, found.op_count, len(found.out_guards)]
told["explain"] = explained()

def loss_inside():
    """The whole step with backward inside is compiled up to what dynamo can."""
    fresh()
    counting = Counting(None)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss
    losses = [torch.compile(step, backend=counting)(x).item().hex() for _ in range(3)]
    return {"losses": losses, **what_dynamo_did(counting, hooks=True)}
told["a step with backward"] = loss_inside()

def optimizer_step():
    fresh()
    counting = Counting(None)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    step = torch.compile(optimizer.step, backend=counting)
    for _ in range(4):
        model(x).sum().backward()
        step()
        scheduler.step()
        optimizer.zero_grad()
    return {"weights": numbers(model.head.weight), **what_dynamo_did(counting, hooks=True)}
told["a compiled optimizer"] = optimizer_step()

def module_compile():
    fresh()
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    return numbers(model(x)), dict(counters["frames"]), numbers(copy.deepcopy(model)(x))
told["Module.compile"] = module_compile()

def checkpointed():
    fresh()
    from torch.utils.checkpoint import checkpoint
    counting = Counting(None)
    model = Net()
    def step(x):
        return checkpoint(model, x, use_reentrant=False)
    out = torch.compile(step, backend=counting)(x)
    out.sum().backward()
    return {"grad": numbers(model.head.weight.grad), **what_dynamo_did(counting)}
told["compiled checkpointing"] = checkpointed()

def failing():
    fresh()
    model = Net()
    try:
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(3, 9))
    except Exception as error:
        # The message holds the program's own lines, and addresses.
        return [type(error).__name__, re.sub("0x[0-9a-f]+", "", str(error))]
told["a failure inside"] = failing()

def exported():
    fresh()
    program = torch.export.export(Net(), (x,))
    return [str(program.graph_module.code), str(program.graph_signature), numbers(program.module()(x))]
told["export"] = exported()
print(json.dumps(told))
'''

OTHERS = TRACED + '''
model = Net()

def traced():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        program = torch.jit.trace(model, x)
    buffer = io.BytesIO()
    torch.jit.save(program, buffer)
    again = torch.jit.load(io.BytesIO(buffer.getvalue()))
    return [str(program.graph), str(program.code), str(program.inlined_graph), numbers(again(x)),
            numbers(program(x)), sorted(str(w.message) + w.filename + str(w.lineno) for w in said)]
told["jit.trace"] = traced()

def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return [str(program.graph), str(program.code)]
told["jit.script"] = scripted()

def symbolic():
    graph = torch.fx.symbolic_trace(model)
    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, Block)
    return [str(graph.graph), graph.code, numbers(graph(x)), str(Leaves().trace(model)),
            [str(n.stack_trace or "") for n in graph.graph.nodes]]
told["fx"] = symbolic()

def functional():
    from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
    parameters = dict(model.named_parameters())
    loss = lambda p, one: functional_call(model, p, (one.unsqueeze(0),)).sum()
    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    models = [Net() for _ in range(2)]
    p, b = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    many = vmap(lambda p, b, one: functional_call(base, (p, b), (one,)), in_dims=(0, 0, None))(p, b, x)
    jac = jacrev(lambda one: model(one.unsqueeze(0)))(x[0])
    return [numbers(each["head.weight"]), numbers(many), numbers(jac)]
told["func"] = functional()

def checkpointed():
    from torch.utils.checkpoint import checkpoint
    found = []
    for reentrant in (True, False):
        model.zero_grad()
        y = x.clone().requires_grad_()
        checkpoint(model, y, use_reentrant=reentrant).sum().backward()
        found += [numbers(model.head.weight.grad), numbers(y.grad)]
    return found
told["checkpoint"] = checkpointed()

def threaded():
    """As DataParallel: several threads call modules, and one module, at once."""
    results, errors = {}, []
    def work(n):
        try:
            for _ in range(50):
                results[n] = numbers(model(torch.ones(2, 4) * n))
        except BaseException as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sorted(results.items()), errors]
told["threads"] = threaded()

def hooked():
    """The program's own hooks run as often, in the same order."""
    calls = []
    def note(name):
        def hook(*args):
            calls.append(name + type(args[0]).__name__)
        return hook
    handles = [model.register_forward_hook(note("forward ")), model.register_full_backward_hook(note("backward ")),
               nn.modules.module.register_module_forward_hook(note("all ")),
               nn.modules.module.register_module_forward_pre_hook(note("pre "))]
    model(x).sum().backward()
    for handle in handles:
        handle.remove()
    return calls
told["hooks"] = hooked()

def odd_modules():
    class Slots(nn.Module):
        def __call__(self, *args):
            return "own", super().__call__(*args)
        def forward(self, *args):
            return args
    class Callable(nn.Module):
        def __eq__(self, other):
            raise TypeError("not comparable")
        __hash__ = None
        def forward(self, x):
            return x
    class Falsy(nn.Module):
        def __len__(self):
            return 0
        def __getattr__(self, name):
            raise AttributeError(name)
        def forward(self):
            return None
    lazy = nn.LazyLinear(2)
    return [Slots()(1, 2), Callable()(3), Falsy()(), list(lazy(x).shape), type(lazy).__name__,
            nn.Module.__call__(nn.Identity(), 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 1))(x).shape[0],
            type(torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 2)), dtype=torch.qint8)(x)).__name__
            if "fbgemm" in torch.backends.quantized.supported_engines else None]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    told["odd modules"] = odd_modules()

def modes():
    from torch.utils._python_dispatch import TorchDispatchMode
    calls = []
    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))
    with Log():
        out = model(x)
        try:
            model(torch.ones(3, 9))
        except RuntimeError:
            pass
    with torch.device("meta"):
        meta = Net()(torch.ones(2, 4))
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        fake = Net()(torch.ones(2, 4))
    return [calls, str(meta.device), type(fake).__name__, list(fake.shape)]
told["modes"] = modes()

def amp():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    return [str(out.dtype), numbers(out.float())]
told["autocast"] = amp()

def profiled():
    with torch.profiler.profile(with_modules=True, with_stack=False) as profile:
        model(x)
    return sorted(e.key for e in profile.key_averages() if e.key.startswith("aten"))
told["profiler"] = profiled()
print(json.dumps(told))
'''


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


def told_bare_and_observed(programs, text, *arguments):
    """The program's account of itself, without and with the probes."""
    path = programs.write("traced.py", text)
    own_cache = {"TORCHINDUCTOR_CACHE_DIR": str(programs.folder / "cache")}
    spool = programs.folder / "spool"
    bare = programs.bare(PYTHON, path, *arguments, env={**environment(), **own_cache})
    assert bare.code == 0, bare.err.decode()[-3000:]
    ours = programs.bare(PYTHON, path, *arguments, env=observed_environment(spool, **own_cache))
    assert ours.code == 0, ours.err.decode()[-3000:]
    main = read_spools(spool)[0]
    assert not main.all("probe-error")
    # The times and pids in torch's own log lines.
    stamp = re.compile(rb"^[A-Z]\d{4} [\d:.]+ \d+ |^STAGE:.*$|\d{4}-\d\d-\d\d [\d:]+ \d+:\d+", re.M)
    assert stamp.sub(b"", bare.err) == stamp.sub(b"", ours.err)
    return bare.data, ours.data, main


def test_compiled_programs(programs):
    backend = "inductor" if shutil.which("g++") or shutil.which("c++") else "none"
    bare, ours, main = told_bare_and_observed(programs, COMPILED, backend)
    for what in bare:
        assert ours[what] == bare[what], what
    # And the program was as it should be: what it tells does not hold trivially.
    assert len(bare["eager backend"]["graphs"]) == 2  # the second for any size
    assert not bare["eager backend"]["breaks"]
    assert bare["a break of its own"]["breaks"]
    assert bare["explain"][:2] == [1, 0]
    assert "relu" in str(bare["export"][0])
    assert main.first("torch")


def test_tracers_transforms_and_threads(programs):
    bare, ours, main = told_bare_and_observed(programs, OTHERS)
    for what in bare:
        assert ours[what] == bare[what], what
    assert "aten::linear" in bare["jit.trace"][2] and not bare["threads"][1]
    assert main.slot(7) > 200  # layout.CALLS: the modules' calls were counted meanwhile
