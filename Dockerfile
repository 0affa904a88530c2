# shardgrad in a container, from the Debian packages that its README names: for machines without them, macOS and Windows
# included. Not for GPUs: those need the CUDA toolkit and NVIDIA's container runtime (docs/cluster.md).
#     docker build -t shardgrad .
#     docker run --rm --shm-size=1g shardgrad launch -n 2 train configs/fashion_mnist.json --set epochs=1
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ cmake ninja-build zlib1g-dev nlohmann-json3-dev libcli11-dev openmpi-bin libopenmpi-dev libdnnl-dev libpcre2-dev git \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DSHARDGRAD_TESTS=OFF -DSHARDGRAD_TUTORIALS=OFF && \
    cmake --build /build && cmake --install /build --prefix /opt/shardgrad

FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends \
    openmpi-bin libopenmpi3 libdnnl2 libpcre2-8-0 libgomp1 zlib1g openssh-client dataset-fashion-mnist \
    && rm -rf /var/lib/apt/lists/* && useradd --create-home student
COPY --from=build /opt/shardgrad /opt/shardgrad
COPY configs /home/student/configs
USER student
WORKDIR /home/student
ENTRYPOINT ["/opt/shardgrad/bin/shardgrad"]
CMD ["--help"]
