"""Residual networks, "v1.5": the stride sits in the 3x3 convolution.

Source: He, Zhang, Ren and Sun, CVPR 2016, https://arxiv.org/abs/1512.03385; with
groups (ResNeXt), Xie, Girshick, Dollar, Tu and He, CVPR 2017,
https://arxiv.org/abs/1611.05431; with the initialisation and parameter shapes of
torchvision's, which published weights have. Nothing here knows an algorithm: what acts
inside the network enters by `tap`, which training calls at named sites and evaluation
never.
"""

import functools
from collections.abc import Callable
from typing import Any

from flax import linen as nn
from jaxtyping import Array

from jbias.models import (
    backbone,
    layers,
    pooling,
    residual_sum,
    taps,
    weight_names,
)
from jbias.runtime import xla

# A module's path here, and the name of the published module that has its weights.
# A rule matches a whole path; each path has one rule.
NAMES = (
    (r"(conv1|bn1|fc)", r"\1"),
    (r"stage(\d)_block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)_block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)_block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
)


def block(
    call: backbone.Call, x: Array, *, plan: tuple, stride: int, project: bool
) -> Array:
    """A residual block: the convolutions of the plan beside a shortcut."""
    y = call.convs(x, *plan, normed=True)
    if project:
        # The gradient of a convolution with strides is mostly zeros: first the pixels,
        # which on a CPU takes a sixth longer in evaluation.
        first = 1 if xla.platform() == "cpu" else stride
        x = x[:, ::first, ::first]
        x = call.conv(x, "", y.shape[-1], 1, stride // first, name="proj")
        x = call.norm(x, "bn_proj")
    return residual_sum.relu_of_sum(y, x, projected=project)


class ResNet(backbone.BatchNormed, kw_only=True):
    """A residual network.

    Sites are, besides those of Backbone, "stem.conv", "stage1.block0.conv1" and so on,
    after each convolution and before its normalisation; projections have none.

    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    stem: "imagenet" (7x7 stride 2, max-pool) or "small" (3x3 stride 1).
    remat: keeps the input of each block alone for the gradient and computes the rest
      again: less memory for about a third more operations.
    groups: of the 3x3 convolutions in bottlenecks; more than one is a ResNeXt.
    width_per_group: channels of each group in stage 1 at the published width.
    """

    depths: tuple[int, int, int, int]
    bottleneck: bool
    width: int = 64
    stem: str = "imagenet"
    remat: bool = False
    groups: int = 1
    width_per_group: int = 64

    def setup(self):
        if not self.bottleneck and (self.groups, self.width_per_group) != (1, 64):
            raise ValueError(
                "models.resnet: groups and width_per_group are for bottlenecks and must "
                f"be 1 and 64 without, got {self.groups} and {self.width_per_group}"
            )
        if self.width * self.width_per_group % 64:
            raise ValueError(
                "models.resnet: width * width_per_group must be a multiple of 64, got "
                f"{self.width} * {self.width_per_group}"
            )
        if self.stem not in ("imagenet", "small"):
            raise ValueError(
                f"models.resnet: stem must be 'imagenet' or 'small', got {self.stem!r}"
            )
        size, stride = (7, 2) if self.stem == "imagenet" else (3, 1)
        self.conv1 = layers.conv(self.width, size, stride, dtype=self.dtype)
        self.bn1 = self._norm()()
        # An attribute that is a dict names its modules stage1_block0 and so on.
        stages = map(self._blocks, range(1, 5))
        self.stage1, self.stage2, self.stage3, self.stage4 = stages
        last = self.width * 8 * (4 if self.bottleneck else 1)
        self.fc = layers.linear(last, self.classes)

    def _blocks(self, stage: int) -> dict[str, backbone.Part]:
        """Blocks of two 3x3 convolutions, or bottlenecks of a 1x1, 3x3 and 1x1."""
        width, made = self.width * 2 ** (stage - 1), {}
        inner = width * self.width_per_group // 64 * self.groups
        for i in range(self.depths[stage - 1]):
            stride = 2 if stage > 1 and i == 0 else 1
            plan = (width, 3, stride, 1), (width, 3, 1, 1)
            if self.bottleneck:
                middle, last = (inner, 3, stride, self.groups), (4 * width, 1, 1, 1)
                plan = (inner, 1, 1, 1), middle, last
            project = i == 0 and (stage > 1 or self.bottleneck)
            run = functools.partial(block, plan=plan, stride=stride, project=project)
            made[f"block{i}"] = self._part(run, f"stage{stage}.block{i}")
        return made

    def _stem(self, x: Array, key, train: bool) -> Array:
        x = taps.through(self, self.conv1(x), "stem.conv", key, train, normed=True)
        x = nn.relu(self.bn1(x, train=train))
        if self.stem == "imagenet":
            x = pooling.max_pool_of_stem(x)
        return taps.through(self, x, "stem", key, train)

    def _stage(self, number: int, x: Array, key, train: bool) -> Array:
        def through(block, x, key):
            return block(x, key, train=train)

        blocks = (self.stage1, self.stage2, self.stage3, self.stage4)[number - 1]
        through = nn.remat(through) if self.remat and train else through
        for i in range(len(blocks)):
            x = through(blocks[f"block{i}"], x, key)
        return x


# Those of the conversion of SimCLRv2's, https://github.com/Separius/SimCLRv2-Pytorch.
_SIMCLR = (
    (r"conv1", r"net.0.0"),
    (r"bn1", r"net.0.1.0"),
    *(
        (rf"stage(\d)_block(\d+)/{ours}", rf"net.\1.blocks.\2.{theirs}")
        for ours, theirs in (
            *(("conv1", "net.0"), ("bn1", "net.1.0"), ("conv2", "net.2")),
            *(("bn2", "net.3.0"), ("conv3", "net.4"), ("bn3", "net.5.0")),
            *(("proj", "projection.shortcut"), ("bn_proj", "projection.bn.0")),
        )
    ),
    (r"fc", r"fc"),
)
DIALECTS = (NAMES, _SIMCLR)
PUBLISHERS = (None, weight_names.Publisher("SimCLRv2", (0.0,) * 3, (1.0,) * 3))


def fitted(at: Callable[[str], tuple[int, ...] | None]) -> dict[str, Any]:
    """The options that the shape of the first kernel tells; see models.importing."""
    kernel = at("conv1/kernel")
    if kernel is None or len(kernel) != 4:
        return {}
    return {"width": kernel[0], "stem": "imagenet" if kernel[2] == 7 else "small"}
