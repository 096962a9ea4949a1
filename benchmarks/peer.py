"""Train and evaluate the same networks in PyTorch, in a separate process, for comparison.

As a program this module builds the networks of a setting, and prints a line of JSON when
the work of a line of its input is done:

    python -m benchmarks.peer '{"setting": {...}, "seeds": 1, "precision": "float32"}'
    train 8
    evaluate 4

Two frameworks in one process would compete for the memory of a GPU. The networks are those
of benchmarks/torch_net.py. On a GPU they are channels-last, in bfloat16 by autocast, and
compiled by torch.compile; on a CPU they run eagerly. Images stay on the device as bytes. If
other processes use the same cores, set OMP_WAIT_POLICY=passive in the environment:
otherwise its threads wait in a busy loop, which is many times slower.

Takes seconds to start, and then ends with its input.
"""

import argparse
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
        task = {
            "setting": dataclasses.asdict(setting),
            "seeds": seeds,
            "precision": precision,
        }
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.peer", json.dumps(task)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._read_reply()

    def train(self, steps: int) -> None:
        """Take `steps` training steps with each network."""
        self._request(f"train {steps}")

    def evaluate(self, batches: int) -> None:
        """Classify `batches` batches with each network."""
        self._request(f"evaluate {batches}")

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()

    def _request(self, line: str) -> None:
        """Send a line, and wait until the work is done."""
        print(line, file=self.process.stdin, flush=True)
        self._read_reply()

    def _read_reply(self) -> dict[str, Any]:
        """Return the next reply; raise RuntimeError if the process has ended."""
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise RuntimeError(f"benchmarks.peer: ended with exit code {code}")
        return json.loads(line)


class Worker:
    """Networks with their optimisers, and random images, all on the device."""

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
        """Return versions, device, number of parameters and other conditions."""
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
        """Take `steps` training steps with every network, and wait for them."""
        loss_of = self.torch.nn.functional.cross_entropy
        self._set_mode(training=True)
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
        """Classify `batches` batches with every network, and wait."""
        self._set_mode(training=False)
        with self.torch.inference_mode():
            for _ in range(batches):
                for call in self.calls:
                    image, _ = self._batch()
                    with self._cast():
                        predicted = call(image).argmax(1)
            predicted.cpu()
        self._wait()

    def _set_mode(self, *, training: bool) -> None:
        """Switch all networks to training or evaluation."""
        for net in self.nets:
            net.train(training)

    def _batch(self):
        """Return normalised images (b 3 h w) and labels (b) of a random batch."""
        shape = (self.setting.batch,)
        rows = self.torch.randint(len(self.labels), shape, device=self.device)
        image = self.images[rows].permute(0, 3, 1, 2).float() / 255
        return (image - self.mean) / self.std, self.labels[rows]

    def _cast(self):
        """Return a context in which convolutions compute in the chosen precision."""
        if not self.half:
            return contextlib.nullcontext()
        return self.torch.autocast(self.device, self.torch.bfloat16)

    def _wait(self) -> None:
        """Wait for all work on the device."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("task", metavar="JSON", help="setting, seeds and precision")
    return result


def main(task_json: str) -> None:
    """Build the networks of a task, and work on the lines of standard input.

    task_json: setting, seeds and precision. Prints a line of JSON when the networks are
    built, and after each line of input.
    """
    task = json.loads(task_json)
    worker = Worker(Setting(**task["setting"]), task["seeds"], task["precision"])
    print(json.dumps(worker.facts()), flush=True)
    actions = {"train": worker.train, "evaluate": worker.evaluate}
    for line in sys.stdin:
        action, count = line.split()
        actions[action](int(count))
        print("{}", flush=True)


if __name__ == "__main__":
    main(parser().parse_args().task)
