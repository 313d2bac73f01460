# mmrl on a CPU, from a checkout:
#   docker build -f docker/cpu.Dockerfile -t mmrl:cpu .
#   docker run --rm -v "$PWD/runs:/home/mmrl/runs" mmrl:cpu fit recipe=demo_vla
# With --build-arg PIP_EXTRA_INDEX_URL=URL, PyTorch's index of CPU wheels, the image is several GB smaller.
FROM python:3.12-slim-bookworm
ARG EXTRAS=vla,vlm,tensorboard
ARG PIP_EXTRA_INDEX_URL=
ENV OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1
COPY . /opt/mmrl
RUN pip install --no-cache-dir "/opt/mmrl[${EXTRAS}]" && useradd --create-home --uid 1000 mmrl
USER 1000
WORKDIR /home/mmrl
ENTRYPOINT ["mmrl"]
CMD ["--help"]
