"""Residual networks, "v1.5": the 3x3 convolution of a bottleneck has the stride.

Source: He, Zhang, Ren and Sun, CVPR 2016, https://arxiv.org/abs/1512.03385; with
groups (ResNeXt), Xie, Girshick, Dollar, Tu and He, CVPR 2017,
https://arxiv.org/abs/1611.05431. Initialisation and parameter shapes are as in torchvision, so that
torchvision's published weights fit. The networks do not depend on any algorithm: an algorithm
changes features at named sites by the field `tap`, a function that is called only in training.
"""

import functools
from collections.abc import Callable
from typing import Any

from flax import linen as nn

from jbias.models import (
    backbone,
    layers,
    pooling,
    residual_sum,
    taps,
    weight_names,
)
from jbias.runtime import xla

# Rules: a pattern of a module's path in this package, and a template of the published
# module's name. A pattern matches the whole path; each path has one rule.
NAMES = (
    (r"(conv1|bn1|fc)", r"\1"),
    (r"stage(\d)_block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)_block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)_block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
)


def block(
    scope: backbone.Scope, x: backbone.Map, *, plan: tuple, stride: int, project: bool
) -> backbone.Map:
    """Return the map after a residual block: convolutions, plus a shortcut, then a ReLU.

    plan: (features, kernel size, stride, groups) of each convolution.
    stride: stride of the whole block.
    project: whether the shortcut is a convolution and batch norm, not the identity.
    """
    y = scope.convs(x, *plan, normed=True)
    if project:
        # The gradient of a convolution with strides is mostly zeros, so pixels are dropped
        # before it. On a CPU that would take a sixth longer in evaluation.
        step = 1 if xla.platform() == "cpu" else stride
        x = x[:, ::step, ::step]
        x = scope.conv(x, "", y.shape[-1], 1, stride // step, name="proj")
        x = scope.norm(x, "bn_proj")
    is_bottleneck = len(plan) == 3
    return residual_sum.relu_of_sum(y, x, from_output=is_bottleneck and not project)


class ResNet(backbone.BatchNormed, kw_only=True):
    """A residual network.

    Sites, in addition to those of Backbone: "stem.conv", "stage1.block0.conv1" and so on,
    after each convolution and before its normalisation. Projections have no sites.

    depths: blocks in each of the four stages.
    bottleneck: whether blocks have a 1x1, a 3x3 and a 1x1 convolution instead of two 3x3.
    width: channels of the stem and of stage 1; 64 is the published size.
    stem: "imagenet" (7x7 stride 2, max-pool) or "small" (3x3 stride 1).
    remat: stores only the input of each block for the gradient and recomputes the
      activations inside: less memory for about a third more operations.
    groups: groups of the 3x3 convolutions in bottlenecks; a ResNeXt has more than one.
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
        """Create the layers; ValueError for invalid widths, groups or stem."""
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
        # Flax names the modules of an attribute that is a dict stage1_block0 and so on.
        self.stage1 = self._make_blocks(1)
        self.stage2 = self._make_blocks(2)
        self.stage3 = self._make_blocks(3)
        self.stage4 = self._make_blocks(4)
        features = self.width * 8 * (4 if self.bottleneck else 1)
        self.fc = layers.linear(features, self.classes)

    def _make_blocks(self, stage: int) -> dict[str, backbone.Submodule]:
        """Return the blocks of a stage, 1 to 4, by name: "block0", "block1" and so on."""
        width, blocks = self.width * 2 ** (stage - 1), {}
        inner = width * self.width_per_group // 64 * self.groups
        for i in range(self.depths[stage - 1]):
            stride = 2 if stage > 1 and i == 0 else 1
            if self.bottleneck:
                plan = (
                    (inner, 1, 1, 1),
                    (inner, 3, stride, self.groups),
                    (4 * width, 1, 1, 1),
                )
            else:
                plan = ((width, 3, stride, 1), (width, 3, 1, 1))
            project = i == 0 and (stage > 1 or self.bottleneck)
            forward = functools.partial(
                block, plan=plan, stride=stride, project=project
            )
            blocks[f"block{i}"] = self._submodule(forward, f"stage{stage}.block{i}")
        return blocks

    def _stem(self, x: backbone.Map, key: backbone.Key, train: bool) -> backbone.Map:
        """Return the output of the stem, given normalised images x."""
        x = taps.through(self, self.conv1(x), "stem.conv", key, train, normed=True)
        x = nn.relu(self.bn1(x, train=train))
        if self.stem == "imagenet":
            x = pooling.max_pool_of_stem(x)
        return taps.through(self, x, "stem", key, train)

    def _stage(
        self, number: int, x: backbone.Map, key: backbone.Key, train: bool
    ) -> backbone.Map:
        """Return the output of stage `number`, 1 to 4, without the site after it."""

        def apply(block, x, key):
            return block(x, key, train=train)

        blocks = (self.stage1, self.stage2, self.stage3, self.stage4)[number - 1]
        apply = nn.remat(apply) if self.remat and train else apply
        for i in range(len(blocks)):
            x = apply(blocks[f"block{i}"], x, key)
        return x


# Names of SimCLRv2's converted weights, https://github.com/Separius/SimCLRv2-Pytorch.
_SIMCLR = (
    (r"conv1", r"net.0.0"),
    (r"bn1", r"net.0.1.0"),
    (r"stage(\d)_block(\d+)/conv1", r"net.\1.blocks.\2.net.0"),
    (r"stage(\d)_block(\d+)/bn1", r"net.\1.blocks.\2.net.1.0"),
    (r"stage(\d)_block(\d+)/conv2", r"net.\1.blocks.\2.net.2"),
    (r"stage(\d)_block(\d+)/bn2", r"net.\1.blocks.\2.net.3.0"),
    (r"stage(\d)_block(\d+)/conv3", r"net.\1.blocks.\2.net.4"),
    (r"stage(\d)_block(\d+)/bn3", r"net.\1.blocks.\2.net.5.0"),
    (r"stage(\d)_block(\d+)/proj", r"net.\1.blocks.\2.projection.shortcut"),
    (r"stage(\d)_block(\d+)/bn_proj", r"net.\1.blocks.\2.projection.bn.0"),
    (r"fc", r"fc"),
)
DIALECTS = (NAMES, _SIMCLR)
PUBLISHERS = (
    None,
    weight_names.Publisher("SimCLRv2", mean=(0.0,) * 3, std=(1.0,) * 3),
)


def infer_options(shape_of: Callable[[str], tuple[int, ...] | None]) -> dict[str, Any]:
    """Return the options "width" and "stem", inferred from the shape of the first kernel.

    Return {} if the file has no such kernel.

    shape_of: path of a parameter -> its published shape, None if the file has no such
      parameter; see models.importing.
    """
    kernel = shape_of("conv1/kernel")
    if kernel is None or len(kernel) != 4:
        return {}
    return {"width": kernel[0], "stem": "imagenet" if kernel[2] == 7 else "small"}
