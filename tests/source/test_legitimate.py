"""Right programs with patterns that careless rules take for faults."""

from __future__ import annotations

import pytest

from torchmedic import registry
from torchmedic.diagnosis import diagnose_source
from torchmedic.source.script import Script

HEAD = """
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
"""
MADE = "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n"
PROGRAMS = {
    "gradient accumulation with a remainder": """
accumulate = 4
for epoch in range(3):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        (F.cross_entropy(model(x), y) / accumulate).backward()
        if (i + 1) % accumulate == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
""",
    "gan": """
maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
of_maker = torch.optim.Adam(maker.parameters())
of_judge = torch.optim.Adam(judge.parameters())
bce = nn.BCEWithLogitsLoss()
for real, _ in loader:
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    fake = maker(torch.randn(len(real), 4))
    of_judge.zero_grad()
    bce(judge(real), ones).backward()
    bce(judge(fake.detach()), zeros).backward()
    of_judge.step()
    of_maker.zero_grad()
    bce(judge(fake), ones).backward()
    of_maker.step()
""",
    "nll with log_softmax": """
for x, y in loader:
    optimizer.zero_grad()
    F.nll_loss(F.log_softmax(model(x), dim=1), y).backward()
    optimizer.step()
""",
    "softmax for a metric": """
total = 0.0
for x, y in loader:
    scores = model(x)
    loss = F.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        total += scores.softmax(dim=1).max(dim=1).values.mean().item()
""",
    "distillation": """
teacher = nn.Linear(8, 3)
teacher.eval()
for x, y in loader:
    with torch.no_grad():
        wanted = F.softmax(teacher(x) / 2.0, dim=1)
    given = model(x)
    loss = F.kl_div(F.log_softmax(given / 2.0, dim=1), wanted, reduction="batchmean")
    loss = loss + F.cross_entropy(given, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "frozen backbone": """
body, head = nn.Linear(8, 16), nn.Linear(16, 3)
for parameter in body.parameters():
    parameter.requires_grad = False
of_head = torch.optim.SGD(head.parameters(), lr=0.1)
for x, y in loader:
    of_head.zero_grad()
    F.cross_entropy(head(body(x)), y).backward()
    of_head.step()
""",
    "frozen by name": """
for name, parameter in model.named_parameters():
    if not name.startswith("3"):
        parameter.requires_grad_(False)
few = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for x, y in loader:
    few.zero_grad()
    F.cross_entropy(model(x), y).backward()
    few.step()
""",
    "lbfgs closure": """
lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.1)
for x, y in loader:
    def closure():
        lbfgs.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    lbfgs.step(closure)
""",
    "truncated backpropagation": """
rnn, out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)
both = torch.optim.Adam([*rnn.parameters(), *out.parameters()])
state = None
for step in range(100):
    x, y = torch.randn(4, 6, 8), torch.randint(0, 3, (4,))
    hidden, state = rnn(x, state)
    state = tuple(part.detach() for part in state)
    both.zero_grad()
    F.cross_entropy(out(hidden[:, -1]), y).backward()
    both.step()
""",
    "moving average of the weights": """
average = copy.deepcopy(model).requires_grad_(False)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.99).add_(new, alpha=0.01)
""",
    "actor and critic": """
actor, critic = nn.Linear(8, 3), nn.Linear(8, 1)
of_actor = torch.optim.Adam(actor.parameters())
of_critic = torch.optim.Adam(critic.parameters())
for x, _ in loader:
    chances = torch.distributions.Categorical(logits=actor(x))
    action, reward = chances.sample(), torch.randn(len(x))
    value = critic(x).squeeze(-1)
    gain = reward - value.detach()
    actor_loss = -(chances.log_prob(action) * gain).mean()
    critic_loss = F.mse_loss(value, reward)
    of_actor.zero_grad()
    actor_loss.backward()
    of_actor.step()
    of_critic.zero_grad()
    critic_loss.backward()
    of_critic.step()
""",
    "policy gradient over episodes": """
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1))
of_policy = torch.optim.Adam(policy.parameters())
for episode in range(100):
    kept, rewards = [], []
    for t in range(10):
        chances = torch.distributions.Categorical(policy(torch.randn(4)))
        action = chances.sample()
        kept.append(chances.log_prob(action))
        rewards.append(1.0)
    loss = torch.stack([-k * r for k, r in zip(kept, rewards)]).sum()
    of_policy.zero_grad()
    loss.backward()
    of_policy.step()
""",
    "lightning with optimization by hand": """
import lightning.pytorch as pl


class Both(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.one, self.two = nn.Linear(8, 3), nn.Linear(8, 3)

    def training_step(self, batch, index):
        x, y = batch
        first, second = self.optimizers()
        for part, optimizer in ((self.one, first), (self.two, second)):
            loss = F.cross_entropy(part(x), y)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self):
        return (torch.optim.Adam(self.one.parameters()), torch.optim.Adam(self.two.parameters()))
""",
    "trainer of transformers": """
from transformers import Trainer


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits.view(-1, 3), labels.view(-1))
        return (loss, outputs) if return_outputs else loss
""",
    "evaluation by a decorator": """
@torch.no_grad()
def accuracy():
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / 64


for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(accuracy())
""",
    "evaluation in inference mode": """
for epoch in range(3):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    outputs = []
    with torch.inference_mode():
        for x, y in loader:
            outputs.append(model(x))
    print(torch.cat(outputs).argmax(1).float().mean())
""",
    "phases": """
for epoch in range(3):
    for phase in ("train", "val"):
        model.train(phase == "train")
        running = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(x), y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            running += loss.item() * x.size(0)
        print(phase, running / 64)
""",
    "residual blocks made in a loop": """
class Block(nn.Module):
    def __init__(self, inner, outer, step):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, step, 1)
        self.norm = nn.BatchNorm2d(outer)
        self.short = nn.Identity()
        if step != 1 or inner != outer:
            self.short = nn.Conv2d(inner, outer, 1, step)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.short(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width, blocks = 3, []
        for outer in (16, 32, 64):
            blocks += [Block(width, outer, 2), Block(outer, outer, 1)]
            width = outer
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


Net()(torch.randn(2, 3, 32, 32))
""",
    "attention over an axis that is no batch": """
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.out = nn.Linear(8, 1), nn.Linear(8, 2)

    def forward(self, bag):
        weights = torch.softmax(self.score(bag), dim=0)
        return self.out((weights * bag).sum(0))


Pool()(torch.randn(30, 8))
""",
    "stop of the gradient in a codebook": """
encoder, decoder, codes = nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(16, 4)
every = [*encoder.parameters(), *decoder.parameters(), *codes.parameters()]
joint = torch.optim.Adam(every)
for x, _ in loader:
    z = encoder(x)
    q = codes(torch.cdist(z, codes.weight).argmin(1))
    loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
    loss = loss + F.mse_loss(decoder(z + (q - z).detach()), x)
    joint.zero_grad()
    loss.backward()
    joint.step()
""",
    "mixed precision": """
device = "cuda" if torch.cuda.is_available() else "cpu"
model.to(device)
scaler = torch.amp.GradScaler(device)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "out of memory retried": """
for x, y in loader:
    try:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        torch.cuda.empty_cache()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_quiet(name: str) -> None:
    made = MADE if "optimizer.step" in PROGRAMS[name] else ""
    script = Script.parse(HEAD + made + PROGRAMS[name], "train.py")
    assert script is not None
    notes: list[str] = []
    found = diagnose_source(script, tuple(registry.for_source("\n".join(script.lines))), notes)
    assert notes == []
    assert [(f.rule, f.message) for f in found if f.severity != "info"] == []
