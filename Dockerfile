# The one image of Sluice: every daemon is a subcommand of /usr/bin/sluice.
#   docker build -t sluice .

# The compiler's image. A digest makes a build repeatable: --build-arg RUST_IMAGE=rust:1.95-bookworm@sha256:…
ARG RUST_IMAGE=rust:1.95-bookworm
FROM ${RUST_IMAGE} AS builder
WORKDIR /src
# The hook is loaded into other people's containers: it is linked against an old C library, by zig.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils python3-venv && rm -rf /var/lib/apt/lists/*
COPY . .
RUN .ci/run glibc
RUN cargo build --release --locked -p sluice-cli
RUN docker/lay-out /out target/release/sluice target/$(uname -m)-unknown-linux-gnu/release/libsluice.so

# Nothing but the binary, the hook, the C library and its loader: no shell, no package manager.
FROM scratch AS runtime
COPY --from=builder /out/ /
# Where the NVIDIA runtime (either mode) and GKE put the driver's libraries.
ENV LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64
ENV PATH=/usr/bin
# The daemons that need no root say so here and in the chart; the node agent asks for root in the chart.
USER 65532:65532
ENTRYPOINT ["/usr/bin/sluice"]
