# An image that has jbias in its working directory, for xpk, SkyPilot's docker: or `docker run`
# (docs/launch.md#an-image). EXTRA: of the installation, gpu or tpu; empty is a CPU.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

ARG EXTRA=gpu
ENV PYTHONUNBUFFERED=1
WORKDIR /jbias
COPY setup.cfg pyproject.toml README.md LICENSE CHANGELOG.md CITATION.cff MANIFEST.in ./
COPY jbias jbias
COPY configs configs
COPY launch launch
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[train,gcs${EXTRA:+,$EXTRA}]"

CMD ["python", "-m", "jbias.main", "--help"]
