//go:build tools

// Package prometheus pins the programs that tests/cluster builds from this module.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
