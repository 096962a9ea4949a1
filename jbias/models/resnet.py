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

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import norm, taps

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_HE_NORMAL = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
# Uniform within +-1/sqrt(fan_in).
_LINEAR = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


# A module's path here, and the name of the published module that has its weights.
# A rule matches a whole path; each path has one rule.
NAMES = (
    (r"(conv1|bn1|fc)", r"\1"),
    (r"stage(\d)_block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)_block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)_block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
)


def _conv(
    features: int,
    size: int,
    stride: int,
    dtype: Any,
    name: str | None = None,
    groups: int = 1,
) -> nn.Conv:
    return nn.Conv(
        features,
        (size, size),
        (stride, stride),
        padding=size // 2,
        feature_group_count=groups,
        use_bias=False,
        dtype=dtype,
        kernel_init=_HE_NORMAL,
        name=name,
    )


class Residual(nn.Module):
    """A residual block of two 3x3 convolutions, or a 1x1, 3x3, 1x1 bottleneck.

    A bottleneck has `inner` channels before its last convolution, its 3x3 one in groups.
    """

    width: int
    inner: int
    groups: int
    stride: int
    bottleneck: bool
    project: bool
    site: str
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        w, inner, stride = self.width, self.inner, self.stride
        plan = ((3, w, stride, 1), (3, w, 1, 1))
        if self.bottleneck:
            plan = ((1, inner, 1, 1), (3, inner, stride, self.groups), (1, 4 * w, 1, 1))
        y = x
        for i, (size, features, step, groups) in enumerate(plan, 1):
            y = _conv(features, size, step, self.dtype, f"conv{i}", groups)(y)
            y = taps.through(self, y, f"{self.site}.conv{i}", key, train)
            y = self.norm(name=f"bn{i}")(y, train=train)
            if i < len(plan):
                y = nn.relu(y)
        if self.project:
            x = _conv(y.shape[-1], 1, stride, self.dtype, "proj")(x)
            x = self.norm(name="bn_proj")(x, train=train)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A residual network that can be cut before any stage.

    net(x) is head_of(features(x)): `features` runs the stem and the stages before
    `stop`, `head_of` the stages from `start` on, pooling, dropout and the linear layer.
    Images are in [0, 1], NHWC; the first layer subtracts `mean` and divides by `std`.
    Logits are float32.

    classes: number of outputs.
    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    stem: "imagenet" (7x7 stride 2, max-pool) or "small" (3x3 stride 1).
    tap: called in training as tap(x, site, key) at "stem.conv", "stage1.block0.conv1"
      and so on, after each convolution and before its normalisation (projections have
      no site), and at "stem", "stage1" ... "stage4" after these; see taps.py.
    dropout: rate before the linear layer.
    dtype: what convolutions compute in; parameters are float32 always.
    remat: keeps the input of each block alone for the gradient and computes the rest
      again: less memory for about a third more operations.
    norm_group: how many consecutive rows of a batch batch norm takes together; 0 is all.
    groups: of the 3x3 convolutions in bottlenecks; more than one is a ResNeXt.
    width_per_group: channels of each group in stage 1 at the published width.
    """

    classes: int
    depths: tuple[int, int, int, int]
    bottleneck: bool
    width: int = 64
    stem: str = "imagenet"
    tap: taps.Tap | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    norm_decay: float = 0.9
    norm_eps: float = 1e-5
    remat: bool = False
    norm_group: int = 0
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
        self.conv1 = _conv(self.width, size, stride, self.dtype)
        self.bn1 = self._norm()()
        # An attribute that is a dict names its modules stage1_block0 and so on.
        self.stage1 = self._blocks(1)
        self.stage2 = self._blocks(2)
        self.stage3 = self._blocks(3)
        self.stage4 = self._blocks(4)
        fan_in = self.width * 8 * (4 if self.bottleneck else 1)
        self.fc = nn.Dense(  # In float32: bfloat16 logits tie.
            self.classes,
            dtype=jnp.float32,
            kernel_init=_LINEAR,
            bias_init=functools.partial(_uniform, limit=fan_in**-0.5),
        )

    def _norm(self) -> Callable[..., nn.Module]:
        return functools.partial(
            norm.BatchNorm,
            decay=self.norm_decay,
            eps=self.norm_eps,
            dtype=self.dtype,
            group=self.norm_group,
        )

    def _blocks(self, stage: int) -> dict[str, Residual]:
        width = self.width * 2 ** (stage - 1)
        return {
            f"block{i}": Residual(
                width=width,
                inner=width * self.width_per_group // 64 * self.groups,
                groups=self.groups,
                stride=2 if stage > 1 and i == 0 else 1,
                bottleneck=self.bottleneck,
                project=i == 0 and (stage > 1 or self.bottleneck),
                site=f"stage{stage}.block{i}",
                tap=self.tap,
                norm=self._norm(),
                dtype=self.dtype,
            )
            for i in range(self.depths[stage - 1])
        }

    def __call__(
        self,
        image: Float[Array, "b h w c"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
    ) -> Float[Array, "b k"]:
        """Returns logits. `key` is for taps and dropout; evaluation needs none."""
        return self.head_of(self.features(image, key, train=train), key, train=train)

    def features(
        self,
        image: Float[Array, "b h w c"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
        stop: int = 3,
    ) -> Float[Array, "b h2 w2 c2"]:
        """Returns the output of the stem and of the stages before `stop`, of 1 to 5."""
        _check_cut("stop", stop)
        x = self._normalise(image)
        x = taps.through(self, self.conv1(x), "stem.conv", key, train)
        x = nn.relu(self.bn1(x, train=train))
        if self.stem == "imagenet":
            x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        x = taps.through(self, x, "stem", key, train)
        return self._stages(x, range(1, stop), key, train)

    def head_of(
        self,
        f: Float[Array, "b h2 w2 c2"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
        start: int = 3,
    ) -> Float[Array, "b k"]:
        """Returns logits of a feature map that enters stage `start`, of 1 to 5."""
        _check_cut("start", start)
        x = self._stages(f.astype(self.dtype), range(start, 5), key, train)
        x = jnp.mean(x, (1, 2))
        if train and self.dropout:
            keep = 1 - self.dropout
            mask = jax.random.bernoulli(taps.stream(key, "dropout"), keep, x.shape)
            x = jnp.where(mask, x / keep, 0)
        return self.fc(x.astype(jnp.float32))

    @staticmethod
    def stage_of(name: str) -> int:
        """Says to which stage a module belongs, given its name: 0 stem, 5 linear."""
        if name.startswith("stage"):
            return int(name.removeprefix("stage").split("_")[0])
        return 5 if name == "fc" else 0

    def _normalise(self, image: Float[Array, "b h w c"]) -> Array:
        channels = len(self.mean)
        if image.shape[-1] != channels or not jnp.issubdtype(image.dtype, jnp.floating):
            raise ValueError(
                f"models.resnet: images must be floats in [0, 1] with {channels} "
                f"channels last, got {image.dtype} of shape {image.shape}"
            )
        mean, std = (jnp.asarray(v).reshape(1, 1, 1, -1) for v in (self.mean, self.std))
        return ((image - mean) / std).astype(self.dtype)

    def _stages(self, x: Array, which: range, key, train: bool) -> Array:
        def through(block, x, key):
            return block(x, key, train=train)

        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        through = nn.remat(through) if self.remat and train else through
        for stage in which:
            blocks = stages[stage - 1]
            for i in range(len(blocks)):
                x = through(blocks[f"block{i}"], x, key)
            x = taps.through(self, x, f"stage{stage}", key, train)
        return x


def _uniform(key: PRNGKeyArray, shape, dtype=jnp.float32, *, limit: float) -> Array:
    return jax.random.uniform(key, shape, dtype, -limit, limit)


def _check_cut(name: str, stage: int) -> None:
    if not 1 <= stage <= 5:
        raise ValueError(f"models.resnet: {name} must be in 1 to 5, got {stage}")


# Called with the number of classes, and ResNet's other fields as options.
resnet18 = functools.partial(ResNet, depths=(2, 2, 2, 2), bottleneck=False)
resnet34 = functools.partial(ResNet, depths=(3, 4, 6, 3), bottleneck=False)
resnet50 = functools.partial(ResNet, depths=(3, 4, 6, 3), bottleneck=True)
resnet101 = functools.partial(ResNet, depths=(3, 4, 23, 3), bottleneck=True)
resnet152 = functools.partial(ResNet, depths=(3, 8, 36, 3), bottleneck=True)
resnext50 = functools.partial(
    ResNet, depths=(3, 4, 6, 3), bottleneck=True, groups=32, width_per_group=4
)

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


def fitted(at: Callable[[str], tuple[int, ...] | None]) -> dict[str, Any]:
    """The options that the shape of the first kernel tells; see models.importing."""
    kernel = at("conv1/kernel")
    if kernel is None or len(kernel) != 4:
        return {}
    return {"width": kernel[0], "stem": "imagenet" if kernel[2] == 7 else "small"}
