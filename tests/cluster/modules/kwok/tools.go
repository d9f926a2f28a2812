//go:build tools

// Package kwok pins the programs that tests/cluster builds from this module.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
