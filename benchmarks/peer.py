"""The same training in PyTorch, in a process of its own that is told when to work.

As a program it builds a setting, and answers each line of its input when that is done:

    python -m benchmarks.peer '{"setting": {...}, "seeds": 1, "precision": "float32"}'
    train 8
    evaluate 4

Two frameworks in one process would fight for the memory of a GPU. The networks are those
of jbias.models.resnet. On a GPU they are channels-last, in bfloat16 by autocast, and
compiled by torch.compile; on a CPU plain. Images stay on the device as bytes. Where others
use the same cores, OMP_WAIT_POLICY=passive in the environment keeps its threads from
waiting for them busily, which is many times slower.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from benchmarks.settings import CLASSES, Setting

ROOT = pathlib.Path(__file__).parents[1]
DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
}


class Peer:
    """A process that trains and evaluates `seeds` networks one after another."""

    def __init__(self, python: str, setting: Setting, *, seeds: int, precision: str):
        told = dict(
            setting=dataclasses.asdict(setting), seeds=seeds, precision=precision
        )
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.peer", json.dumps(told)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()

    def train(self, steps: int) -> None:
        """Takes `steps` steps with each network."""
        self._ask(f"train {steps}")

    def evaluate(self, batches: int) -> None:
        """Decides about `batches` batches with each network."""
        self._ask(f"evaluate {batches}")

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()

    def _ask(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)
        self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"benchmarks.peer: ended with {self.process.wait()}")
        return json.loads(line)


def network(setting: Setting):
    """The ResNet of jbias.models.resnet, initialised by PyTorch."""
    import torch
    from torch import nn

    def conv(fan_in, fan_out, side, stride):
        return nn.Conv2d(fan_in, fan_out, side, stride, side // 2, bias=False)

    class Residual(nn.Module):
        def __init__(self, fan_in, width, stride, bottleneck):
            super().__init__()
            plan = ((3, width, stride), (3, width, 1))
            if bottleneck:
                plan = ((1, width, 1), (3, width, stride), (1, 4 * width, 1))
            layers, c = [], fan_in
            for side, features, step in plan:
                layers += [conv(c, features, side, step), nn.BatchNorm2d(features)]
                layers += [nn.ReLU(inplace=True)]
                c = features
            self.inner, self.out = nn.Sequential(*layers[:-1]), c
            self.skip = nn.Identity()
            if stride > 1 or c != fan_in:
                self.skip = nn.Sequential(conv(fan_in, c, 1, stride), nn.BatchNorm2d(c))

        def forward(self, x):
            return torch.relu(self.inner(x) + self.skip(x))

    bottleneck, c = setting.model == "resnet50", setting.width
    large = setting.stem == "imagenet"
    layers = [conv(3, c, 7 if large else 3, 2 if large else 1)]
    layers += [nn.BatchNorm2d(c), nn.ReLU(inplace=True)]
    layers += [nn.MaxPool2d(3, 2, 1)] * large
    for stage, depth in enumerate(DEPTHS[setting.model]):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(Residual(c, setting.width * 2**stage, stride, bottleneck))
            c = layers[-1].out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, CLASSES)]
    return nn.Sequential(*layers, *head)


class Worker:
    """Networks with their optimisers, on images that are on the device."""

    def __init__(self, setting: Setting, seeds: int, precision: str):
        import torch

        self.torch, self.setting = torch, setting
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.half = precision == "bfloat16"
        on_gpu = self.device == "cuda"
        torch.backends.cudnn.benchmark = True
        n = max(2 * setting.batch, 64)
        shape = (n, setting.size, setting.size, 3)
        self.images = torch.randint(256, shape, dtype=torch.uint8, device=self.device)
        self.labels = torch.randint(CLASSES, (n,), device=self.device)
        # As in jbias.models.resnet.
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        self.mean, self.std = (
            torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (mean, std)
        )
        form = torch.channels_last if on_gpu else torch.contiguous_format
        nets = [network(setting).to(self.device) for _ in range(seeds)]
        self.nets = [net.to(memory_format=form) for net in nets]
        self.calls = [torch.compile(net) if on_gpu else net for net in self.nets]
        self.optimisers = [
            torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4, fused=on_gpu)
            for net in self.nets
        ]

    def facts(self) -> dict[str, Any]:
        """What runs where."""
        torch = self.torch
        on_gpu = self.device == "cuda"
        return {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "threads": torch.get_num_threads(),
            "parameters": sum(p.numel() for p in self.nets[0].parameters()),
            "precision": "bfloat16" if self.half else "float32",
            "compiled": on_gpu,
            "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        }

    def train(self, steps: int) -> None:
        """Takes that many steps with every network, and waits for them."""
        loss_of = self.torch.nn.functional.cross_entropy
        self._set(training=True)
        for _ in range(steps):
            for call, optimiser in zip(self.calls, self.optimisers):
                image, label = self._batch()
                with self._cast():
                    loss = loss_of(call(image).float(), label)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
        self._wait()

    def evaluate(self, batches: int) -> None:
        """Decides about that many batches with every network, and waits."""
        self._set(training=False)
        with self.torch.inference_mode():
            for _ in range(batches):
                for call in self.calls:
                    image, _ = self._batch()
                    with self._cast():
                        decided = call(image).argmax(1)
            decided.cpu()
        self._wait()

    def _set(self, *, training: bool) -> None:
        for net in self.nets:
            net.train(training)

    def _batch(self):
        shape = (self.setting.batch,)
        taken = self.torch.randint(len(self.labels), shape, device=self.device)
        image = self.images[taken].permute(0, 3, 1, 2).float() / 255
        return (image - self.mean) / self.std, self.labels[taken]

    def _cast(self):
        if not self.half:
            return contextlib.nullcontext()
        return self.torch.autocast(self.device, self.torch.bfloat16)

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def main(told: str) -> None:
    told = json.loads(told)
    worker = Worker(Setting(**told["setting"]), told["seeds"], told["precision"])
    print(json.dumps(worker.facts()), flush=True)
    for line in sys.stdin:
        what, count = line.split()
        ways = {"train": worker.train, "evaluate": worker.evaluate}
        ways[what](int(count))
        print("{}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
