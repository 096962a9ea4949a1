"""Networks of PyTorch to measure, with gradients and with what passes inside.

    import jbias.torch

    model = jbias.torch.wrap(torchvision.models.resnet18(weights="DEFAULT"), size=224)
    jbias.measure(model, "jbias:suites/biases:data=imagenet,root=/data/imagenet")

Needs the extra `torch`, or PyTorch as it is installed already. On a single core, import it
before jax computes anything.
"""

import contextlib
import functools
import hashlib
import inspect
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Float
from torch import nn

from jbias.evals import predictors, preprocessing

# PyTorch answers inside a program of jax, which takes another thread than what waits for
# it: XLA has as many threads as there are cores, and would wait for ever with one.
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as usual.
Images = Float[Array, "b h w 3"]


def wrap(
    module: nn.Module,
    *,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    preprocess: Any = None,
    size: int = 0,
    name: str = "",
    sites: Sequence[str] | Mapping[str, str] = (),
    **options: Any,
) -> predictors.Predictor:
    """Return the Predictor of a module that takes (b, 3, h, w) and gives logits.

    It may give an object with `logits`. It is put into evaluation mode, stays on its device,
    and keeps its precision.
    mean, std: taken off images in [0, 1], and what they are divided by. Where they are not
      given, what `preprocess` says; else what the module says, such as timm's
      `pretrained_cfg` or an attribute of evals.preprocessing.ATTRIBUTES; else ImageNet's.
      A line says which when it is measured, and where what is given differs from what the
      module says.
    preprocess: a description of the preprocessing, such as weights.transforms() of
      torchvision or an image processor of transformers; see evals.preprocessing.parse.
    size: of its images, in pixels; 0 takes any. name: of its folder; by itself the class's.
    sites: modules inside that can be looked at, as named_modules calls them, or by names of
      your own; by themselves the parts of its outermost sequences, such as "layer1.0".
    options: of predictors.Predictor, such as classes. By `version` it is told from the
      same module with other weights: by itself a digest of these.
    """
    _check_weights(module)
    inside = _Network(module.eval(), sites)
    digest = hashlib.sha256()
    for key, value in module.state_dict().items():
        digest.update(key.encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    given = {"version": digest.hexdigest()[:16], **options}
    told = _preprocessing(module, preprocess, mean=mean, std=std, size=size)
    normalise = functools.partial(
        _normalise, mean=told.values["mean"], std=told.values["std"]
    )
    return predictors.Predictor(
        inside.answer,
        name=name or type(module).__name__,
        preprocess=told,
        size=size,
        apply=lambda image: inside.logits(normalise(image)),
        at=lambda image, site: inside.at(normalise(image), site),
        net=_Sites(inside, normalise),
        **given,
    )


def _check_weights(module: nn.Module) -> None:
    """Raise ValueError where a parameter is NaN or infinite, or a buffer is NaN.

    Buffers may hold masks of -inf.
    """
    numbers = [(name, x, torch.isfinite) for name, x in module.named_parameters()]
    numbers += [(name, x, lambda x: ~x.isnan()) for name, x in module.named_buffers()]
    for name, array, is_fine in numbers:
        if array.is_floating_point() and not is_fine(array).all():
            broken = int((~is_fine(array)).sum())
            raise ValueError(
                f"torch: weights must be finite, NaN or infinite are {broken:,} of "
                f"{array.numel():,} in {name}; give other weights"
            )


def _preprocessing(
    module: nn.Module, preprocess: Any, *, mean, std, size: int
) -> preprocessing.Preprocessing:
    """Return what is done to a module's images: as the caller says, else as it says."""
    if preprocess is None:
        said = preprocessing.read(module)
    else:
        said = preprocessing.parse(preprocess)
    if not {"mean", "std"} & said.values.keys() and _is_torchvision(module):
        origin = "ImageNet's, as of all classifiers of torchvision"
        published = {"mean": MEAN, "std": STD}
        said = preprocessing.Preprocessing(
            values={**said.values, **published},
            origins={**said.origins, **dict.fromkeys(published, origin)},
            others=said.others,
        )
    explicit = {"mean": mean, "std": std, "size": size or None}
    return preprocessing.resolve(said, explicit, {"mean": MEAN, "std": STD})


def _is_torchvision(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torchvision.models.")


class ZeroShot(nn.Module):
    """Classifies images by the texts that they are nearest to, as CLIP does.

    encode: images -> (b, d), a module or a module's method. texts: (k, d), one a class. The logits are scale times the
    cosines. Source: Radford et al., ICML 2021, https://arxiv.org/abs/2103.00020.
    """

    def __init__(
        self,
        encode: Callable[[torch.Tensor], torch.Tensor],
        texts: torch.Tensor,
        *,
        scale: float = 100.0,
    ):
        super().__init__()
        self.encode, self.scale = encode, scale
        if inspect.ismethod(encode):  # Its weights and parts are this one's.
            self.of = encode.__self__
        self.register_buffer("texts", nn.functional.normalize(texts.detach(), dim=-1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.encode(images)
        seen = seen.pooler_output if hasattr(seen, "pooler_output") else seen
        seen = nn.functional.normalize(seen, dim=-1)
        return self.scale * seen @ self.texts.T.to(seen)


def _normalise(image: Images, mean, std) -> Images:
    mean, std = (jnp.broadcast_to(jnp.float32(x), image.shape) for x in (mean, std))
    return (image - mean) / std


class _Network:
    """A module asked by JAX; images are normalised, with channels last."""

    def __init__(self, module: nn.Module, sites: Sequence[str] | Mapping[str, str]):
        self.module, self._lock = module, threading.Lock()
        named = sites if isinstance(sites, Mapping) else {x: x for x in sites}
        self._modules = dict(module.named_modules())
        for path in named.values():
            if path not in self._modules:
                known = ", ".join(x for x in self._modules if x and x.count(".") < 2)
                raise ValueError(f"sites: no module {path!r}; there are {known}")
        self._named = dict(named) or {x: x for x in _parts(module)}
        self._shapes = functools.cache(self._run_shapes)
        self.logits = _differentiable(self, ())

    def answer(self, images: Float[np.ndarray, "b h w 3"]) -> np.ndarray:
        """The module's own logits."""
        with self._lock, torch.no_grad():
            return _to_numpy(self._forward(self._tensor(images)))

    def _tensor(self, images: Any) -> torch.Tensor:
        weight = next(self.module.parameters(), torch.zeros(()))
        image = torch.from_numpy(np.array(images, np.float32))
        image = image.permute(0, 3, 1, 2).contiguous()
        return image.to(weight.device, weight.dtype)

    def _forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.module(image)
        return found.logits if hasattr(found, "logits") else found

    def run(
        self, image: torch.Tensor, sites: Sequence[str]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Logits, and what passes sites, as PyTorch has it; each site once."""
        seen: dict[str, torch.Tensor] = {}

        def note(site, module, given, found):
            x = found[0] if isinstance(found, tuple) else found
            if not isinstance(x, torch.Tensor) or x.ndim not in (3, 4) or site in seen:
                return None
            seen[site] = x  # A copy goes on, which may be changed in its place.
            return (x.clone(), *found[1:]) if isinstance(found, tuple) else x.clone()

        with contextlib.ExitStack() as stack:
            for site in sites:
                hook = functools.partial(note, site)
                of = self._modules[self._named[site]]
                stack.callback(of.register_forward_hook(hook).remove)
            return self._forward(image), seen

    def _run_shapes(self, side: int) -> tuple[int, dict[str, tuple[int, ...]]]:
        with self._lock, torch.no_grad():
            image = self._tensor(np.zeros((1, side, side, 3)))
            logits, seen = self.run(image, tuple(self._named))
        return logits.shape[1], {k: _channels_last(x).shape for k, x in seen.items()}

    def shapes(self, image: Any, sites: Sequence[str]) -> tuple:
        """Of logits and of sites, without running the images."""
        count, shapes = self._shapes(image.shape[1])
        for site in sites:
            if site not in shapes:
                known = ", ".join(shapes)
                raise ValueError(f"torch: site must be of {known}, got {site!r}")
        every = [(count,), *(shapes[site][1:] for site in sites)]
        return tuple(jax.ShapeDtypeStruct((len(image), *x), np.float32) for x in every)

    def sites(self, side: int) -> tuple[str, ...]:
        """Those through which maps or tokens pass, in that order."""
        return tuple(self._shapes(side)[1])

    @contextlib.contextmanager
    def graph(self, image: Any, sites: Sequence[str]) -> Iterator[tuple]:
        """The images, and logits and sites that gradients lead back from."""
        with self._lock, torch.enable_grad():
            x = self._tensor(image).requires_grad_()
            logits, seen = self.run(x, sites)
            yield x, logits, [seen[site] for site in sites]

    def at(self, image: Images, site: str) -> tuple[Array, Array]:
        """What passes a site, and the gradient there of each image's largest logit."""
        shape = self.shapes(image, (site,))[1]

        def look(image):
            with self.graph(image, (site,)) as (_, logits, (seen,)):
                (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), seen)
                return tuple(_to_numpy(_channels_last(x)) for x in (seen, gradient))

        return jax.pure_callback(look, (shape, shape), image)


class _Sites:
    """What models.taps.Readable asks for."""

    def __init__(self, network: _Network, normalise: Callable[[Images], Images]):
        self._network, self._normalise = network, normalise
        self._read = functools.cache(functools.partial(_differentiable, network))

    def sites(self, side: int) -> tuple[str, ...]:
        return self._network.sites(side)

    def read(self, image: Images) -> tuple[Array, dict[str, Array]]:
        names = self.sites(image.shape[1])
        logits, *seen = self._read(names)(self._normalise(image), whole=True)
        return logits, dict(zip(names, seen, strict=True))


def _differentiable(network: _Network, sites: tuple[str, ...]) -> Callable:
    """Logits and sites as a function that JAX differentiates, by PyTorch's autograd."""

    @jax.custom_vjp
    def call(image):
        def forward(image):
            with network._lock, torch.no_grad():
                logits, seen = network.run(network._tensor(image), sites)
            seen = [_channels_last(seen[site]) for site in sites]
            return tuple(_to_numpy(x) for x in (logits, *seen))

        return jax.pure_callback(forward, network.shapes(image, sites), image)

    def keep(image):
        return call(image), image

    def pull(image, gradients):
        def backward(image, gradients):
            with network.graph(image, sites) as (x, logits, seen):
                values = [logits, *map(_channels_last, seen)]
                pairs = zip(gradients, values)
                given = [torch.from_numpy(np.array(g)).to(v) for g, v in pairs]
                (found,) = torch.autograd.grad(values, x, given)
            return _to_numpy(found.permute(0, 2, 3, 1))

        shape = jax.ShapeDtypeStruct(image.shape, np.float32)
        return (jax.pure_callback(backward, shape, image, gradients),)

    call.defvjp(keep, pull)
    return lambda image, whole=False: call(image) if whole else call(image)[0]


def _parts(module: nn.Module, path: str = "") -> Iterator[str]:
    """The parts of the outermost sequences; of a network without any, its children."""
    children = {f"{path}.{k}".strip("."): x for k, x in module.named_children()}
    listed = isinstance(module, nn.Sequential | nn.ModuleList)
    for name, child in children.items():
        inner = [] if listed else list(_parts(child, name))
        yield from inner or ([name] if listed or not path else [])


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    """Maps (b, h, w, c) of (b, c, h, w); tokens as maps, or (b, 1, n, c) beside a class's.

    Maps that are square in their middle axes and not in their last have channels last.
    """
    if x.ndim == 3:
        side = math.isqrt(x.shape[1])
        rows = (side, side) if side**2 == x.shape[1] > 1 else (1, x.shape[1])
        return x.reshape(len(x), *rows, x.shape[2])
    last = x.shape[1] == x.shape[2] != x.shape[3]
    return x if last else x.permute(0, 2, 3, 1)


def _to_numpy(x: torch.Tensor) -> np.ndarray:
    return x.detach().float().cpu().contiguous().numpy()
