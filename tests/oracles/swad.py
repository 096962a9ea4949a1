"""Write swad.json: the segments that SWAD's authors average, for random validation losses.

Their class LossValley of https://github.com/khanrc/swad at 252190e runs on models with one weight
per segment, whose average says how often each segment is in it.

git clone https://github.com/khanrc/swad swad && git -C swad checkout 252190e
python3.11 -m venv v && v/bin/pip install torch==2.13.0 numpy
v/bin/python tests/oracles/swad.py swad tests/oracles/swad.json
"""

import json
import random
import sys

COUNT, STEPS = 1000, 10  # Sequences of losses; steps per segment.
OPTIONS = (
    (3, 6, 0.3),
    (3, 3, 0.3),
    (5, 2, 0.2),
    (2, 8, 0.1),
    (1, 1, 0.05),
    (4, 6, 0.0),
)


def losses_of(number):
    """Return the options and the validation losses of a sequence.

    The losses fall, stay and rise, with noise; every fourth sequence has ties.
    """
    rng = random.Random(number)
    length, fall, rise = (rng.randrange(a, b) for a, b in ((1, 25), (1, 10), (1, 25)))
    noise, slope = 0.3 * rng.random() ** 2, 0.2 * rng.random()
    losses = []
    for i in range(length):
        level = 0.5 + 0.5 * max(0, 1 - i / fall) + slope * max(0, i - rise)
        losses.append(level * (1 + noise * (rng.random() - 0.5)))
    digits = 1 if number % 4 == 0 else 6
    return OPTIONS[number % len(OPTIONS)], [round(loss, digits) for loss in losses]


def run_reference(swad, swa_utils, torch, number):
    """Return [first step, last step, [number of times that each segment is in the average]].

    The steps are -1 if the average is a copy of a segment.
    """
    (n_converge, n_tolerance, tolerance_ratio), losses = losses_of(number)
    valley = swad.LossValley(None, n_converge, n_tolerance, tolerance_ratio)
    for i, loss in enumerate(losses):
        model = torch.nn.Linear(len(losses), 1, bias=False).double()
        with torch.no_grad():
            model.weight.copy_(torch.eye(len(losses), dtype=torch.float64)[i : i + 1])
        segment = swa_utils.AveragedModel(model)
        for step in range(STEPS * i, STEPS * (i + 1)):
            segment.update_parameters(model, step=step)
        valley.update_and_evaluate(segment, 0.0, loss, print)
        if valley.dead_valley:
            break
    final = valley.get_final_model()
    size = max(1, int(final.n_averaged)) if valley.is_converged else 1
    counts = [round(share * size) for share in final.module.weight[0].tolist()]
    return [final.start_step, final.end_step, counts]


def main():
    folder, path = sys.argv[1:]
    sys.path.insert(0, folder)
    import logging
    import types

    import torch

    # The package's other modules need packages that the decision does not.
    package = types.ModuleType("domainbed")
    package.__path__ = [f"{folder}/domainbed"]
    library = types.ModuleType("domainbed.lib")
    library.__path__ = [f"{folder}/domainbed/lib"]
    sys.modules |= {"domainbed": package, "domainbed.lib": library}
    from domainbed import swad
    from domainbed.lib import swa_utils

    torch.nn.Module.cuda = lambda self: self
    evaluator = types.SimpleNamespace(logger=logging.getLogger("swad"))
    evaluator.logger.disabled = True
    swad.SWADBase.evaluator = None
    original = swad.LossValley.__init__

    def init(self, _, n_converge, n_tolerance, tolerance_ratio):
        original(self, evaluator, n_converge, n_tolerance, tolerance_ratio)

    swad.LossValley.__init__ = init
    swad.print = lambda *words: None
    answers = [run_reference(swad, swa_utils, torch, i) for i in range(COUNT)]
    with open(path, "w") as file:
        json.dump(answers, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
