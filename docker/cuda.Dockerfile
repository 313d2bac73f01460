# mmrl on NVIDIA GPUs, from a checkout; the machine has the driver and the NVIDIA Container Toolkit:
#   docker build -f docker/cuda.Dockerfile -t mmrl:cuda .
#   docker run --rm --gpus all --ipc=host -v "$PWD/runs:/home/mmrl/runs" mmrl:cuda doctor
# PyTorch's wheels bring the CUDA libraries; a C compiler is there for kernels that are compiled when they first run.
FROM python:3.12-slim-bookworm
ARG EXTRAS=vla,vlm,tensorboard,vllm,qlora
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics PYTHONUNBUFFERED=1
# hadolint ignore=DL3008 # the compiler of the image's Debian release
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /opt/mmrl
RUN pip install --no-cache-dir "/opt/mmrl[${EXTRAS}]" && useradd --create-home --uid 1000 mmrl
USER 1000
WORKDIR /home/mmrl
ENTRYPOINT ["mmrl"]
CMD ["--help"]
