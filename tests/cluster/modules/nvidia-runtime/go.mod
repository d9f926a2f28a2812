module sluice.dev/tests/cluster/nvidia-runtime

go 1.24
