"""The same training in PyTorch, in a process of its own that is told when to work.

As a program it builds a setting, and answers each line of its input when that is done:

    python -m benchmarks.peer '{"setting": {...}, "seeds": 1, "precision": "float32"}'
    train 8
    evaluate 4

Two frameworks in one process would fight for the memory of a GPU. The networks are those
of benchmarks/torch_net.py. On a GPU they are channels-last, in bfloat16 by autocast, and
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


class Worker:
    """Networks with their optimisers, on images that are on the device."""

    def __init__(self, setting: Setting, seeds: int, precision: str):
        import torch

        from benchmarks import torch_net

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
        nets = [torch_net.network(setting).to(self.device) for _ in range(seeds)]
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
